"""Holds and captures: prices, cancelled callers, and a database that fails or loses commits."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from sqlmodel import select

from configs.environment import sqlite_url
from configs.load import load_yaml
from configs.schema.platform import PlansConfig, Prices
from db.billing import ledger
from db.billing.tables import CreditHold as HoldRow
from db.billing.tables import LedgerEntry
from db.database import Database, utc_now
from db.errors import DatabaseUnavailable
from db.webhooks import NewEvent
from pipelines.billing import billing
from pipelines.billing.billing import Billing, Charge, to_usd
from pipelines.billing.operation import Operation
from pipelines.errors import InsufficientCredit
from telemetry import metrics
from tests.db.rows import rows
from tests.db.test_webhooks import plain
from tests.migrated import migrate
from tests.patience import PATIENCE_S, until

WORKSPACE = 3
CREDIT = 5_000_000


class FlakyDatabase(Database):
    """Raises DatabaseUnavailable while `down`, or after a commit whose response is lost."""

    down = False
    lost_responses = 0  # how many next commits lose their response
    gate: threading.Event | None = None  # transactions wait until it is set

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._flaky(super().run, work, *args, **kwargs)

    async def run_plain(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._flaky(super().run_plain, work, *args, **kwargs)

    async def run_in_order(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._flaky(super().run_in_order, work, *args, **kwargs)

    async def _flaky(
        self, run: Callable[..., Any], work: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        if self.down:
            raise DatabaseUnavailable("down")
        gate = self.gate

        def gated(transaction: Any, *args: Any, **kwargs: Any) -> Any:
            if gate is not None:
                gate.wait(10)
            return work(transaction, *args, **kwargs)

        result = await run(gated, *args, **kwargs)
        if self.lost_responses:
            self.lost_responses -= 1
            raise DatabaseUnavailable("the connection was lost at the commit")
        return result


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[FlakyDatabase]:
    url = sqlite_url(tmp_path / "test.db")
    migrate(url)
    opened = FlakyDatabase(url)
    await opened.run(ledger.open_account, WORKSPACE, CREDIT)
    yield opened
    assert await opened.read(ledger.discrepancies) == []
    opened.close()


@pytest.fixture
def bills(database: FlakyDatabase) -> Billing:
    return Billing(database, load_yaml(PlansConfig, "plans").prices, plain)


async def kinds(database: Database) -> list[str]:
    """The kinds of all ledger entries after the first grant."""
    query = select(LedgerEntry.kind).order_by(LedgerEntry.id)  # type: ignore[arg-type]
    return list(await database.read(lambda session: session.exec(query).all()))[1:]


async def test_costs_follow_the_prices_of_the_plans(bills: Billing) -> None:
    assert bills.cost("chat", 1000) == 20_000
    assert bills.cost("tts", 5000) == 75_000
    assert bills.cost("stt", 60_000) == 6_000
    assert bills.cost("voice", 1) == 1_000_000


@pytest.mark.parametrize(("milliseconds", "cost"), [(0, 0), (1, 1), (10, 1), (11, 2), (1000, 100)])
def test_costs_are_rounded_up_to_a_whole_micro_usd(
    bills: Billing, milliseconds: int, cost: int
) -> None:
    assert bills.cost("stt", milliseconds) == cost


def test_micro_usd_are_converted_to_usd_with_six_decimals() -> None:
    assert [to_usd(micro) for micro in (0, 1, 20, 4_999_985)] == [0.0, 0.000001, 0.00002, 4.999985]


async def test_a_hold_that_exceeds_the_credit_is_refused_and_counted(bills: Billing) -> None:
    def refusals() -> float:
        labels = {"service": "voice"}
        name = "antiphon_credit_refusals_total"
        return metrics.REGISTRY.get_sample_value(name, labels) or 0.0

    before = refusals()
    with pytest.raises(InsufficientCredit, match=r"may cost 6\.000000 USD"):
        await bills.hold(WORKSPACE, "voice", 6, Operation())
    with pytest.raises(InsufficientCredit):
        await bills.hold(404, "tts", 1, Operation())  # a workspace without an account
    assert await bills.credit(WORKSPACE) == CREDIT
    await bills.hold(WORKSPACE, "voice", 1, Operation())
    assert refusals() == before + 1


async def test_usage_is_recorded_also_when_prices_are_zero(database: FlakyDatabase) -> None:
    free = Prices(
        chat_token=0, embedding_thousand_tokens=0, tts_character=0, stt_second=0, custom_voice=0
    )
    hold = await Billing(database, free, plain).hold(WORKSPACE, "chat", 50, Operation())
    assert await hold.capture(40) == 0
    now = utc_now()
    days = await database.read(ledger.usage, WORKSPACE, now - timedelta(1), now + timedelta(1))
    assert [(day.service, day.units, day.cost) for day in days] == [("chat", 40, 0)]


async def cancel_in_transaction(
    bills: Billing, database: FlakyDatabase, work: Coroutine[Any, Any, Any], lost_responses: int
) -> None:
    """Cancels `work` while the database computes, and waits for what follows."""
    database.gate = threading.Event()
    database.lost_responses = lost_responses
    task = asyncio.create_task(work)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    database.gate.set()
    await bills.wait_for_settlements()


@pytest.mark.parametrize("lost_responses", [0, 1])
@pytest.mark.parametrize("operation", [Operation(), Operation(name="request")])
async def test_a_hold_is_released_when_its_caller_is_cancelled_meanwhile(
    bills: Billing, database: FlakyDatabase, operation: Operation, lost_responses: int
) -> None:
    work = bills.hold(WORKSPACE, "tts", 100, operation=operation)
    await cancel_in_transaction(bills, database, work, lost_responses)
    assert await kinds(database) == ["hold", "release"]


@pytest.mark.parametrize("lost_responses", [0, 1])
async def test_a_capture_is_completed_when_its_caller_is_cancelled_meanwhile(
    bills: Billing, database: FlakyDatabase, lost_responses: int
) -> None:
    hold = await bills.hold(WORKSPACE, "tts", 100, Operation())
    await cancel_in_transaction(bills, database, hold.capture(10), lost_responses)
    await hold.release()  # as the `finally` of a route does
    assert await kinds(database) == ["hold", "capture"]
    assert await bills.credit(WORKSPACE) == CREDIT - 150


async def test_a_capture_whose_commit_response_was_lost_is_refunded_on_release(
    bills: Billing, database: FlakyDatabase
) -> None:
    hold = await bills.hold(WORKSPACE, "tts", 100, Operation())
    database.lost_responses = 1
    with pytest.raises(DatabaseUnavailable):
        await hold.capture(100)
    await hold.release()
    assert await kinds(database) == ["hold", "capture", "refund"]
    assert await bills.credit(WORKSPACE) == CREDIT


async def test_a_capture_retried_after_a_lost_commit_response_charges_once(
    bills: Billing, database: FlakyDatabase
) -> None:
    hold = await bills.hold(WORKSPACE, "tts", 100, Operation())
    database.lost_responses = 1
    with pytest.raises(DatabaseUnavailable):
        await hold.capture(10)
    assert await hold.capture(10) == 150
    assert await kinds(database) == ["hold", "capture"]


async def test_a_charge_is_refunded_when_the_repeated_request_fails(
    bills: Billing, database: FlakyDatabase
) -> None:
    async def hold_again() -> Charge:
        operation = Operation(name="request")
        return await bills.hold(WORKSPACE, "tts", 100, operation=operation)

    await (await hold_again()).capture(100)  # and its process died before it answered
    again = await hold_again()
    assert await again.capture(100) == 0
    assert await kinds(database) == ["hold", "capture"]
    await (await hold_again()).release()
    assert await kinds(database) == ["hold", "capture", "refund"]
    assert await bills.credit(WORKSPACE) == CREDIT
    assert await (await hold_again()).capture(100) == 1500


async def test_only_new_requests_need_credit_before_the_work(bills: Billing) -> None:
    spent = await bills.hold(WORKSPACE, "voice", 4, Operation())
    held = await bills.hold(WORKSPACE, "stt", 9_999_990, operation=Operation(name="died"))
    await bills.check_credit(WORKSPACE, "stt", 10, Operation())
    for operation in (Operation(), Operation(name="new")):
        with pytest.raises(InsufficientCredit, match=r"0\.000002 USD"):
            await bills.check_credit(WORKSPACE, "stt", 20, operation)
    await bills.check_credit(WORKSPACE, "stt", 20, Operation(name="died"))
    await held.capture(9_999_990)
    await bills.check_credit(WORKSPACE, "stt", 20, Operation(name="died"))
    await spent.release()
    await bills.check_credit(WORKSPACE, "stt", 20, Operation())


async def test_settlements_are_retried_until_the_database_is_back(
    bills: Billing, database: FlakyDatabase
) -> None:
    kept, returned = [await bills.hold(WORKSPACE, "tts", 100, Operation()) for _ in range(2)]
    database.down = True
    kept.used = 20
    kept.leave()
    await returned.release()
    await asyncio.sleep(0.15)
    database.down = False
    await bills.wait_for_settlements()
    assert await bills.credit(WORKSPACE) == CREDIT - 300
    assert sorted(await kinds(database)) == ["capture", "hold", "hold", "release"]


async def test_unsettled_holds_expire_when_the_database_stays_down(
    bills: Billing, database: FlakyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing, "HOLD", timedelta())
    monkeypatch.setattr(billing, "SETTLE_WITHIN_S", 0.2)
    hold = await bills.hold(WORKSPACE, "tts", 100, Operation())
    database.down = True
    hold.used = 20
    hold.leave()
    await bills.wait_for_settlements()
    database.down = False
    assert await database.run(ledger.release_expired, utc_now()) == 1
    assert await rows(database, select(HoldRow)) == [] and await bills.credit(WORKSPACE) == CREDIT


async def expires_at(database: Database) -> datetime:
    """Of the only hold."""
    [moment] = await rows(database, select(HoldRow.expires_at))
    return cast(datetime, moment)


async def is_renewed(database: Database, after: datetime) -> bool:
    return await expires_at(database) > after


async def test_an_open_charge_keeps_its_credit_held_however_long_its_stream_lasts(
    bills: Billing, database: FlakyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing, "RENEW_AFTER_S", 0.02)
    charge = await bills.hold(WORKSPACE, "tts", 100, Operation())
    first = await expires_at(database)
    await until(lambda: is_renewed(database, first + timedelta(seconds=0.1)))
    assert await database.run(ledger.release_expired, first + timedelta(seconds=0.1)) == 0
    assert await bills.credit(WORKSPACE) == CREDIT - 1500
    assert await charge.capture(100) == 1500


async def test_renewals_survive_an_outage_and_end_with_the_last_charge(
    bills: Billing, database: FlakyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing, "RENEW_AFTER_S", 0.02)
    charge = await bills.hold(WORKSPACE, "tts", 100, Operation())
    database.down = True
    await asyncio.sleep(0.1)
    database.down = False
    first = await expires_at(database)
    await until(lambda: is_renewed(database, first))
    await charge.release()
    renewing = bills._renewing
    assert renewing is not None
    async with asyncio.timeout(PATIENCE_S):
        await renewing


async def test_the_hold_of_a_charge_that_nothing_refers_to_is_not_renewed(
    bills: Billing, database: FlakyDatabase
) -> None:
    await bills.hold(WORKSPACE, "tts", 100, Operation())
    gc.collect()
    assert not await bills._renew()


async def test_work_without_units_adds_no_rows_to_the_ledger(
    bills: Billing, database: FlakyDatabase
) -> None:
    async with await bills.hold(WORKSPACE, "chat", 0, Operation()) as charge:
        assert await charge.capture(0) == 0
    assert await kinds(database) == []


async def test_a_capture_whose_event_cannot_be_written_charges_nothing(
    bills: Billing, database: FlakyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("an event that is no JSON")

    hold = await bills.hold(WORKSPACE, "tts", 100, Operation())
    monkeypatch.setattr(billing, "add_event", fail)
    with pytest.raises(ValueError, match="no JSON"):
        await hold.capture(10, NewEvent("tts.completed", {}))
    await hold.release()
    assert await kinds(database) == ["hold", "release"]
