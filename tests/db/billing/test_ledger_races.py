"""The ledger under concurrent transactions and killed processes, on both databases."""

import asyncio
import multiprocessing
from collections import Counter
from datetime import timedelta

import pytest
from sqlmodel import select

from db.billing import ledger
from db.billing.tables import LedgerEntry
from db.database import Database, utc_now
from tests.db.billing.ledger_work import crash_while_paying, spend_in_threads
from tests.db.rows import rows

WORKSPACE = 11
PRICE = 10
CREDIT = 700


async def check_balance(database: Database, captured: int) -> None:
    """Once open holds are released, only `captured` is gone, and the ledger is consistent."""
    assert await database.read(ledger.discrepancies) == []
    await database.run(ledger.release_expired, utc_now() + timedelta(hours=1))
    assert await database.read(ledger.discrepancies) == []
    assert await database.read(ledger.credit_of, WORKSPACE) == CREDIT - captured
    entries = await rows(database, select(LedgerEntry))
    assert sum(entry.amount for entry in entries) == CREDIT - captured
    ends = Counter(entry.operation for entry in entries if entry.kind in ("capture", "release"))
    assert max(ends.values()) == 1


async def test_32_threads_never_overspend_credit(database: Database, database_url: str) -> None:
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    captured = spend_in_threads(database_url, WORKSPACE, threads=32, price=PRICE, attempts=6)
    assert captured <= CREDIT
    await check_balance(database, captured)


async def test_concurrent_credit_changes_of_one_operation_apply_once(database: Database) -> None:
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    changes = (
        database.run(ledger.change_credit, WORKSPACE, "payment 1", 50, "operator") for _ in range(8)
    )
    assert sorted(await asyncio.gather(*changes)) == ["done"] + 7 * ["done_before"]
    assert await database.read(ledger.credit_of, WORKSPACE) == CREDIT + 50


async def test_concurrent_refunds_of_one_charge_apply_once(database: Database) -> None:
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    await database.run(
        ledger.hold,
        workspace_id=WORKSPACE,
        operation="one",
        service="tts",
        amount=PRICE,
        expires_at=utc_now(),
    )
    await database.run(
        ledger.capture, workspace_id=WORKSPACE, operation="one", service="tts", cost=PRICE, units=1
    )
    refunds = (database.run(ledger.refund, WORKSPACE, "one") for _ in range(8))
    assert sum(await asyncio.gather(*refunds)) == 1
    assert await database.read(ledger.credit_of, WORKSPACE) == CREDIT


async def test_4_processes_never_overspend_credit(database: Database, database_url: str) -> None:
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        captured = sum(
            pool.starmap(spend_in_threads, [(database_url, WORKSPACE, 4, PRICE, 12)] * 4)
        )
    assert 0 < captured <= CREDIT
    await check_balance(database, captured)


@pytest.mark.slow
async def test_a_process_killed_between_hold_and_capture_charges_once_or_never(
    database: Database, database_url: str
) -> None:
    await database.run(ledger.open_account, WORKSPACE, CREDIT)
    price, deaths = 1, 25  # also tried with 200
    dying = multiprocessing.get_context("spawn").Process(
        target=crash_while_paying, args=(database_url, WORKSPACE, price, deaths)
    )
    dying.start()
    dying.join(120)
    assert dying.exitcode == 0
    # Two of the five points at which a process is killed are after the commit of a capture.
    await check_balance(database, price * deaths * 2 // 5)
