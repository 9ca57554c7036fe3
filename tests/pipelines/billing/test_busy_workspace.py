"""Many charges of one workspace at once: they add up, and leave connections to other workspaces."""

import asyncio

import pytest
from sqlmodel import Session, func, select

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.billing import ledger
from db.billing.tables import LedgerEntry
from db.database import Database, make_engine
from pipelines.billing import billing
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from tests.patience import PATIENCE_S

BUSY, OTHER = 1, 2
CREDIT = 10**9


def gateway(database: Database) -> Billing:
    return Billing(database, load_yaml(PlansConfig, "plans").prices, lambda text, _: text)


async def test_64_writers_of_one_workspace_are_each_charged_once(
    database: Database, database_url: str
) -> None:
    await database.run(ledger.open_account, BUSY, CREDIT)
    databases = [Database(database_url) for _ in range(8)]
    gateways = [gateway(one) for one in databases for _ in range(8)]

    async def write(one: Billing) -> int:
        charged = 0
        for _ in range(2):
            charge = await one.hold(BUSY, "tts", 100, Operation())
            charged += await charge.capture(90)
        return charged

    charged = sum(await asyncio.gather(*map(write, gateways)))
    for one in databases:
        one.close()
    assert await database.read(ledger.discrepancies) == []
    assert await database.read(ledger.credit_of, BUSY) == CREDIT - charged
    captures = select(func.count()).where(LedgerEntry.kind == "capture")
    assert await database.read(lambda session: session.exec(captures).one()) == 2 * 64


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_a_workspace_whose_account_is_locked_leaves_connections_to_others(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(billing, "TURN_S", PATIENCE_S)
    for workspace in (BUSY, OTHER):
        await database.run(ledger.open_account, workspace, CREDIT)
    service = gateway(database)
    engine = make_engine(database_url)
    with Session(engine) as session:
        assert ledger.lock_account(session, BUSY)
        waiting = [
            asyncio.create_task(service.hold(BUSY, "tts", 1, Operation())) for _ in range(20)
        ]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE_S / 2):
            await (await service.hold(OTHER, "tts", 1, Operation())).capture(1)
        assert not any(one.done() for one in waiting)
    engine.dispose()
    for charge in await asyncio.gather(*waiting):
        await charge.release()
    assert await database.read(ledger.discrepancies) == []


async def test_charges_do_not_wait_longer_than_a_moment_for_their_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the database hangs: then each fails after its own timeout, and not after others."""
    monkeypatch.setattr(billing, "TURN_S", 0.01)
    await database.run(ledger.open_account, BUSY, CREDIT)
    service = gateway(database)
    async with service._turn(BUSY), service._turn(BUSY), service._turn(BUSY):
        await (await service.hold(BUSY, "tts", 1, Operation())).capture(1)
    assert not service._turns.taken
    assert await database.read(ledger.credit_of, BUSY) < CREDIT
