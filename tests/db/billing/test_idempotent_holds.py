"""Idempotent holds: requests that are retried after their process crashed, on both databases."""

import asyncio
import threading

import pytest
from sqlmodel import Session

from db.billing import ledger
from db.billing.ledger import ATTEMPTS, IdempotentHold, hold_idempotently
from db.database import Database
from tests.db.billing.ledger_work import soon

WORKSPACE = 7
CREDIT = 1000


@pytest.fixture
async def account(database: Database) -> Database:
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    return database


async def hold(database: Database, amount: int = 400) -> IdempotentHold | None:
    return await database.run(
        hold_idempotently,
        workspace_id=WORKSPACE,
        name="request",
        service="tts",
        amount=amount,
        expires_at=soon(),
    )


def capture(session: Session, operation: str) -> None:
    ledger.capture(
        session, workspace_id=WORKSPACE, operation=operation, service="tts", cost=300, units=20
    )


async def credit(database: Database) -> int:
    return await database.read(ledger.credit_of, WORKSPACE)


async def test_the_hold_of_a_crashed_attempt_is_released_by_the_next(account: Database) -> None:
    first = await hold(account)
    second = await hold(account, 700)
    assert first is not None and second is not None
    assert first.operation != second.operation and not second.is_paid
    assert await credit(account) == CREDIT - 700


async def test_an_attempt_after_a_capture_is_paid_and_holds_nothing(account: Database) -> None:
    first = await hold(account)
    assert first is not None
    await account.run(capture, first.operation)
    again = await hold(account)
    assert again is not None and again.is_paid
    assert await credit(account) == CREDIT - 300


async def test_an_attempt_during_a_capture_waits_for_it_and_is_paid(account: Database) -> None:
    """The lease of the first attempt has expired, but its process was only slow."""
    first = await hold(account)
    assert first is not None
    captured, commits = threading.Event(), threading.Event()

    def capture_slowly(session: Session) -> None:
        capture(session, first.operation)
        captured.set()
        commits.wait(10)

    capturing = asyncio.create_task(account.run(capture_slowly))
    await asyncio.to_thread(captured.wait, 10)
    again = asyncio.create_task(hold(account))
    await asyncio.sleep(0.2)
    commits.set()
    await capturing
    assert await again == IdempotentHold(first.operation, is_paid=True)
    assert await credit(account) == CREDIT - 300


async def test_the_holds_of_all_crashed_attempts_are_released(account: Database) -> None:
    for number in (1, 2):
        await account.run(
            ledger.hold,
            workspace_id=WORKSPACE,
            operation=f"request.{number}",
            service="tts",
            amount=300,
            expires_at=soon(),
        )
    third = await hold(account, CREDIT)
    assert third == IdempotentHold("request.3", is_paid=False)
    assert await ledger_is_consistent(account)


async def test_an_attempt_after_a_refund_must_be_paid_again(account: Database) -> None:
    first = await hold(account)
    assert first is not None
    await account.run(capture, first.operation)
    await account.run(ledger.refund, WORKSPACE, first.operation)
    again = await hold(account)
    assert again is not None and not again.is_paid


async def test_an_attempt_beyond_the_credit_holds_nothing(account: Database) -> None:
    assert await hold(account, CREDIT + 1) is None
    assert await credit(account) == CREDIT


async def test_attempts_beyond_the_maximum_number_are_refused(
    account: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_ATTEMPTS", 2 * ATTEMPTS)
    for _ in range(2 * ATTEMPTS):
        held = await hold(account)
        assert held is not None
        await account.run(
            ledger.release, workspace_id=WORKSPACE, operation=held.operation, service="tts"
        )
    assert await hold(account) is None
    assert await ledger_is_consistent(account)


async def ledger_is_consistent(database: Database) -> bool:
    return not await database.read(ledger.discrepancies)
