"""The ledger on both databases: the effect of each operation, and that it applies once."""

from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session, select

from db.billing import ledger
from db.billing.ledger_check import check_days
from db.billing.tables import LedgerEntry
from db.database import Database, utc_now
from tests.db.billing.ledger_work import soon

WORKSPACE = 2**53 - 1
CREDIT = 1000


@pytest.fixture
async def account(database: Database) -> Database:
    """A database with one account that has CREDIT."""
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    return database


async def credit(database: Database) -> int:
    return await database.read(ledger.credit_of, WORKSPACE)


async def hold(
    database: Database,
    operation: str,
    amount: int = 400,
    *,
    service: str = "tts",
    expires_at: datetime | None = None,
) -> bool:
    return await database.run(
        ledger.hold,
        workspace_id=WORKSPACE,
        operation=operation,
        service=service,
        amount=amount,
        expires_at=expires_at or soon(),
    )


async def capture(
    database: Database, operation: str, cost: int, *, service: str = "tts", units: int = 7
) -> ledger.Settled:
    return await database.run(
        ledger.capture,
        workspace_id=WORKSPACE,
        operation=operation,
        service=service,
        cost=cost,
        units=units,
    )


async def release(database: Database, operation: str) -> bool:
    return await database.run(
        ledger.release, workspace_id=WORKSPACE, operation=operation, service="tts"
    )


async def entries(database: Database) -> list[tuple[str, str, int, int, int]]:
    rows = await database.read(
        lambda session: session.exec(select(LedgerEntry).order_by(LedgerEntry.id)).all()  # type: ignore[arg-type]
    )
    return [(row.operation, row.kind, row.amount, row.held, row.balance_after) for row in rows]


async def test_a_capture_charges_the_cost_and_releases_the_rest(account: Database) -> None:
    assert await hold(account, "one")
    assert await credit(account) == CREDIT - 400
    assert await capture(account, "one", 150) == ledger.Settled(150, is_new=True)
    assert await credit(account) == CREDIT - 150
    assert await entries(account) == [
        ("signup", "grant", CREDIT, 0, CREDIT),
        ("one", "hold", 0, 400, CREDIT),
        ("one", "capture", -150, -400, CREDIT - 150),
    ]
    assert await account.read(ledger.discrepancies) == []


async def test_only_expired_holds_are_released(account: Database) -> None:
    past = utc_now() - timedelta(seconds=1)
    await hold(account, "old", 300, expires_at=past)
    await hold(account, "older", 200, service="stt", expires_at=past)
    await hold(account, "live")
    assert await account.run(ledger.release_expired, utc_now()) == 2
    assert await account.run(ledger.release_expired, utc_now()) == 0
    assert await credit(account) == CREDIT - 400
    assert await account.read(ledger.discrepancies) == []


async def test_renewed_holds_do_not_expire_and_only_named_ones_are_renewed(
    account: Database,
) -> None:
    past = utc_now() - timedelta(seconds=1)
    for name in ("kept", "captured", "forgotten"):
        await hold(account, name, 300, expires_at=past)
    await capture(account, "captured", 100)
    names = ["kept", "captured", "never held"]
    assert await account.run_plain(ledger.renew_holds, names, soon()) == 1
    assert await account.run(ledger.release_expired, utc_now()) == 1
    assert await credit(account) == CREDIT - 400
    assert await account.read(ledger.discrepancies) == []


@pytest.mark.parametrize(
    ("spent", "cost", "charged"),
    [
        pytest.param(0, 100, 100, id="the cost"),
        pytest.param(0, 500, 300, id="what was held"),
        pytest.param(CREDIT - 60, 100, 60, id="the remaining credit"),
        pytest.param(CREDIT, 100, 0, id="no credit left"),
    ],
)
async def test_a_capture_after_its_hold_expired_charges_at_most_the_remaining_credit(
    account: Database, spent: int, cost: int, charged: int
) -> None:
    await hold(account, "old", 300, expires_at=utc_now())
    await account.run(ledger.release_expired, utc_now() + timedelta(seconds=1))
    assert await hold(account, "new", spent)
    assert await capture(account, "old", cost) == ledger.Settled(charged, is_new=True)
    assert await capture(account, "old", cost) == ledger.Settled(charged, is_new=False)
    assert not await release(account, "old")
    assert await credit(account) == CREDIT - spent - charged
    assert await account.run(ledger.refund, WORKSPACE, "old")
    assert await credit(account) == CREDIT - spent
    assert await account.read(ledger.discrepancies) == []


async def test_credit_is_added_or_removed_once_per_operation(account: Database) -> None:
    async def change(operation: str, amount: int, workspace: int = WORKSPACE) -> str:
        return await account.run(ledger.change_credit, workspace, operation, amount, "operator")

    assert await change("payment-1", 500) == "done"
    assert await change("payment-1", 500) == "done_before"
    assert await change("payment-1", 500, WORKSPACE + 1) == "no_account"
    await hold(account, "one")
    assert await change("back-1", -1101) == "too_little"  # 400 of 1500 are held
    assert await change("back-1", -1100) == "done"
    assert await credit(account) == 0
    assert await account.read(ledger.discrepancies) == []


@pytest.mark.parametrize(
    "change", ["UPDATE ledger_entry SET amount = 0", "DELETE FROM ledger_entry"]
)
async def test_ledger_entries_cannot_be_changed_or_deleted(account: Database, change: str) -> None:
    with pytest.raises(DBAPIError, match="append-only"):
        await account.run(lambda session: session.connection().execute(text(change)))


async def test_a_balance_that_differs_from_its_entries_is_a_discrepancy(account: Database) -> None:
    await hold(account, "one")

    def change(session: Session) -> None:
        for statement in ("UPDATE account SET balance = balance + 1", "UPDATE hold SET amount = 1"):
            session.connection().execute(text(statement))

    await account.run(change)
    assert await account.read(ledger.discrepancies) == [
        ledger.Discrepancy(WORKSPACE, CREDIT + 1, CREDIT, held=400, entries_held=400, holds=1)
    ]


async def test_usage_is_summed_by_service_and_utc_day(
    account: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = datetime(2028, 3, 1, tzinfo=UTC)
    moments = [-1, 0, 3600, 86_399, 86_400]
    for number, seconds in enumerate(moments):
        moment = midnight + timedelta(seconds=seconds)
        monkeypatch.setattr(ledger, "utc_now", lambda moment=moment: moment)
        service = "stt" if number == 2 else "tts"
        await hold(account, f"{number}", 50, service=service)
        await hold(account, f"left {number}", 5, service="chat")
        await capture(account, f"{number}", 10, service=service, units=number)
    days = await account.read(ledger.usage, WORKSPACE, midnight.date(), midnight.date())
    assert [(f"{day.day}", day.service, day.units, day.requests, day.cost) for day in days] == [
        ("2028-03-01", "stt", 2, 1, 10),
        ("2028-03-01", "tts", 1 + 3, 2, 20),
    ]
    all_days = await account.read(ledger.usage, WORKSPACE, date(2028, 2, 29), date(2028, 3, 2))
    assert [day.day.day for day in all_days] == [29, 1, 1, 2]


async def test_check_days_finds_daily_sums_that_differ_from_their_entries(
    account: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in (datetime(2028, 3, 1, tzinfo=UTC), datetime(2028, 7, 1, 23, 59, tzinfo=UTC)):
        monkeypatch.setattr(ledger, "utc_now", lambda moment=moment: moment)
        await hold(account, f"{moment}")

    async def wrong() -> list[list[date]]:
        found, since = [], date(1970, 1, 1)
        while checked := await account.run(check_days, WORKSPACE, since):
            found.append(checked.wrong)
            since = checked.following
        return found

    assert await wrong() == [[], [], []]  # the third is today, with the sign-up grant
    change = text("UPDATE ledger_day SET held = held + 1 WHERE day = '2028-07-01'")
    await account.run(lambda session: session.connection().execute(change))
    assert [found for found in await wrong() if found] == [[date(2028, 7, 1)]]
    change = text("DELETE FROM ledger_day WHERE day = '2028-03-01'")
    await account.run(lambda session: session.connection().execute(change))
    assert [found for found in await wrong() if found] == [[date(2028, 3, 1)], [date(2028, 7, 1)]]
