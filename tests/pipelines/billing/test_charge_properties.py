"""Whatever happens to a charge, it is settled once, for what its caller received."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlmodel import select

from configs.environment import sqlite_url
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.billing import ledger
from db.billing.tables import CreditHold, LedgerEntry
from db.database import Database
from db.errors import DatabaseUnavailable
from models.errors import EngineLost, EngineStopped, InvalidEngineRequest
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import VoiceNotFound
from tests.db.test_webhooks import plain
from tests.migrated import migrate

UNITS = 100
CREDIT = 5_000_000
WORKSPACES = count(1)
PRICES = load_yaml(PlansConfig, "plans").prices

CALLERS_FAULTS = (VoiceNotFound("the voice was deleted"), InvalidEngineRequest("nothing to speak"))
SERVICE_FAULTS = (EngineLost("the replica died"), RuntimeError("a fault"), DatabaseUnavailable(""))
STOPPED = EngineStopped("the service stops")


@dataclass(frozen=True)
class Life:
    """What happens to a charge."""

    progress: tuple[tuple[int, bool], ...]  # units, and whether they are sent
    end: str | Exception | type[BaseException]
    captured: int
    ends_again: bool
    stops: bool
    delivered: int | None

    @property
    def expected(self) -> int:
        """The units that it costs."""
        used = max((min(units, UNITS) for units, is_sent in self.progress if is_sent), default=0)
        if self.stops and self.delivered is not None:
            used = min(used, self.delivered)
        if self.end in ("capture", "capture_delivered"):
            return min(self.captured, UNITS)
        if self.end == "release" or self.end in SERVICE_FAULTS:
            return 0
        return used  # what is not sent is free for the first hang-ups


units = st.integers(0, 2 * UNITS)
lives = st.builds(
    Life,
    progress=st.lists(st.tuples(units, st.booleans()), max_size=4).map(tuple),
    end=st.sampled_from(
        (
            *("capture", "capture_delivered", "release", "leave", asyncio.CancelledError),
            *(GeneratorExit, STOPPED, *CALLERS_FAULTS, *SERVICE_FAULTS),
        )
    ),
    captured=units,
    ends_again=st.booleans(),
    stops=st.booleans(),
    delivered=st.none() | units,
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("charges") / "test.db"
    migrate(sqlite_url(path))
    yield sqlite_url(path)


async def live(bills: Billing, workspace: int, life: Life) -> None:
    charge = await bills.hold(workspace, "tts", UNITS, Operation())
    try:
        async with charge:
            for done, is_sent in life.progress:
                charge.progress(done, is_sent=is_sent)
            charge.delivered = life.delivered
            bills.is_stopping = life.stops
            if isinstance(life.end, Exception):
                raise life.end
            if isinstance(life.end, type):
                raise life.end
            end = getattr(charge, life.end)
            result = end(life.captured) if life.end.startswith("capture") else end()
            if asyncio.iscoroutine(result):
                await result
    except BaseException as error:
        if error is not life.end and type(error) is not life.end:
            raise
    if life.ends_again:
        await charge.capture_delivered(UNITS)
        charge.leave()
        await charge.release()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=lives)
@example(Life(((40, True),), asyncio.CancelledError, 0, True, False, None))
@example(Life(((40, False),), "leave", 0, True, False, None))
@example(Life(((40, True),), STOPPED, 0, False, True, 10))
def test_a_charge_is_settled_once_for_what_its_caller_received(url: str, life: Life) -> None:
    workspace = next(WORKSPACES)

    async def check() -> None:
        database = Database(url)
        await database.run(ledger.open_account, workspace, CREDIT)
        bills = Billing(database, PRICES, plain)
        await live(bills, workspace, life)
        await bills.wait_for_settlements()
        cost = bills.cost("tts", life.expected)
        assert await bills.credit(workspace) == CREDIT - cost
        mine = select(CreditHold).where(CreditHold.workspace_id == workspace)
        assert not await database.read(lambda session: session.exec(mine).all())
        entries = select(LedgerEntry.kind).where(LedgerEntry.workspace_id == workspace)
        kinds = await database.read(lambda session: list(session.exec(entries).all()))
        assert len(kinds) == 3 and kinds.count("hold") == 1  # the grant, the hold and its end
        assert await database.read(ledger.discrepancies) == []
        database.close()

    asyncio.run(check())
