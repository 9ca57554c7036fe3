"""Charging live audio in slices: holds, captures and database failures; with a manual clock."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlmodel import Session as OrmSession
from sqlmodel import select

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.accounts import User, Workspace
from db.billing.ledger import change_credit, credit_of, discrepancies, open_account
from db.database import Database
from db.errors import DatabaseUnavailable
from db.webhooks import Event, NewEvent, Webhook
from pipelines.billing.audio_meter import SLICE_MS, AudioMeter
from pipelines.billing.billing import Billing, Charge
from pipelines.billing.operation import Operation
from pipelines.errors import InsufficientCredit
from tests.db.test_webhooks import plain
from tests.migrated import sqlite_database
from tests.patience import PATIENCE_S

WORKSPACE = 1
SLICE = 6000  # micro-USD


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as opened:
        yield opened


class FlakyBilling(Billing):
    """Counts holds, and raises DatabaseUnavailable while `is_down`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, load_yaml(PlansConfig, "plans").prices, plain)
        self.holds = 0
        self.is_down = False
        self.gate: asyncio.Event | None = None  # holds wait until it is set

    async def hold(self, *args, **kwargs) -> Charge:  # type: ignore[no-untyped-def]
        if self.is_down:
            raise DatabaseUnavailable("gone")
        if self.gate is not None:
            await self.gate.wait()
        self.holds += 1
        return await super().hold(*args, **kwargs)


class Session:
    """An audio meter with a manual clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.billing = FlakyBilling(database)
        self.now = 100.0
        self.meter = AudioMeter(self.billing, WORKSPACE, Operation(), lambda: self.now)

    async def hear_until(self, seconds: float, step_s: float = 1.0) -> None:
        while self.meter.heard_ms < seconds * 1000:
            self.now += step_s
            await self.meter.cover(self.meter.heard_ms + round(step_s * 1000))
            await asyncio.sleep(0.002)  # for holds in the background

    async def another(self, credit: int) -> AudioMeter:
        """The meter of another workspace, which has that credit."""
        await self.database.run(open_account, 2, credit)
        return AudioMeter(self.billing, 2, Operation(), lambda: self.now)

    async def end(self) -> tuple[int, int]:
        """The charge and the remaining credit, in micro-USD, once all is settled."""
        await self.meter.settle()
        await self.billing.wait_for_settlements()
        assert await self.database.read(discrepancies) == []
        return self.meter.charged, await self.database.read(credit_of, WORKSPACE)


@pytest.fixture
async def session(database: Database) -> Session:
    await database.run(open_account, WORKSPACE, 10 * SLICE)
    return Session(database)


async def test_the_next_slice_is_held_shortly_before_the_current_one_ends(session: Session) -> None:
    await session.hear_until(30)
    assert session.billing.holds == 1
    await session.hear_until(50)
    assert session.billing.holds == 2
    assert await session.end() == (5000, 10 * SLICE - 5000)


async def test_consecutive_slices_charge_every_second_exactly_once(session: Session) -> None:
    await session.hear_until(200)
    assert await session.end() == (20_000, 10 * SLICE - 20_000)


async def test_one_message_longer_than_a_slice_is_charged_in_full(session: Session) -> None:
    await session.meter.cover(3 * SLICE_MS + 1)
    assert await session.end() == (3 * SLICE + 1, 7 * SLICE - 1)


async def test_a_database_failure_within_a_slice_does_not_interrupt_audio(session: Session) -> None:
    await session.hear_until(35)
    session.billing.is_down = True
    await session.hear_until(55)
    session.billing.is_down = False
    await session.hear_until(100)
    assert await session.end() == (10_000, 9 * SLICE - 4000)


async def test_a_database_failure_at_the_end_of_a_slice_raises_an_error(session: Session) -> None:
    await session.hear_until(55)
    await asyncio.sleep(0.01)
    await session.hear_until(90)  # the next slice was held before that
    session.billing.is_down = True
    with pytest.raises(DatabaseUnavailable):
        await session.hear_until(130)
    assert session.meter.heard_ms == 120_000
    assert (await session.end())[0] == 2 * SLICE


async def test_audio_beyond_the_credit_is_refused_until_credit_is_added(session: Session) -> None:
    meter = await session.another(SLICE)
    await meter.cover(59_000)
    with pytest.raises(InsufficientCredit):
        await meter.cover(61_000)
    assert meter.heard_ms == 59_000
    await session.database.run(change_credit, 2, "more", SLICE, "the test")
    await meter.cover(61_000)
    await meter.settle()
    assert meter.charged == 6100


async def test_the_last_slice_is_as_long_as_the_remaining_credit(session: Session) -> None:
    meter = await session.another(SLICE + 1234)
    await meter.cover(60_000)
    await meter.cover(72_340)
    with pytest.raises(InsufficientCredit):
        await meter.cover(72_341)
    await meter.settle()
    await session.billing.wait_for_settlements()
    assert (meter.heard_ms, meter.charged) == (72_340, SLICE + 1234)
    assert await session.database.read(credit_of, 2) == 0


async def test_credit_for_less_than_one_second_of_audio_is_refused(session: Session) -> None:
    meter = await session.another(99)
    with pytest.raises(InsufficientCredit, match=r"0\.000100 USD"):
        await meter.cover(10)
    await meter.settle()
    assert meter.charged == 0


async def test_free_audio_is_held_in_whole_slices_and_not_charged(database: Database) -> None:
    billing = FlakyBilling(database)
    billing._prices = billing._prices.model_copy(update={"stt_second": 0})
    await database.run(open_account, WORKSPACE, 0)
    meter = AudioMeter(billing, WORKSPACE, Operation())
    await meter.cover(10 * SLICE_MS)
    await meter.settle()
    assert (billing.holds, meter.charged) == (10, 0)


async def test_audio_on_which_the_service_failed_is_not_charged(session: Session) -> None:
    await session.hear_until(10)
    session.meter.forgive(4000)
    assert (await session.end())[0] == 600


async def test_cancelling_while_a_slice_is_held_releases_the_hold(session: Session) -> None:
    covering = asyncio.create_task(session.meter.cover(1000))
    await asyncio.sleep(0)
    covering.cancel()
    await asyncio.wait([covering])
    assert await session.end() == (0, 10 * SLICE)


async def test_settling_twice_charges_once(session: Session) -> None:
    await session.hear_until(10)
    await session.meter.settle()
    assert await session.end() == (1000, 10 * SLICE - 1000)


async def test_a_session_cancelled_while_settling_is_charged_with_its_event(
    session: Session,
) -> None:
    """As when the client leaves after `stop`, while the next slice is being held."""
    await session.database.run(_subscribe)
    gate = session.billing.gate = asyncio.Event()
    gate.set()
    await session.hear_until(30)
    gate.clear()
    await session.hear_until(45)  # the hold of the second slice has begun
    ending = asyncio.create_task(session.meter.settle(NewEvent("stt.completed", {"text": "yes"})))
    await asyncio.sleep(0.05)
    ending.cancel()
    await asyncio.wait([ending])
    gate.set()  # the second slice is held, and released
    async with asyncio.timeout(PATIENCE_S):
        while (await session.end())[1] != 10 * SLICE - 4500:
            await asyncio.sleep(0.02)
    events = await session.database.read(lambda rows: rows.exec(select(Event.kind)).all())
    assert events == ["stt.completed"]


async def test_audio_that_is_covered_while_the_session_settles_is_not_charged_twice(
    session: Session,
) -> None:
    gate = session.billing.gate = asyncio.Event()
    gate.set()
    await session.hear_until(30)
    gate.clear()
    covering = asyncio.create_task(session.meter.cover(70_000))
    await asyncio.sleep(0.05)
    ending = asyncio.create_task(session.meter.settle())
    await asyncio.sleep(0.05)
    gate.set()
    await asyncio.gather(covering, ending)
    assert await session.end() == (3000, 10 * SLICE - 3000)


def _subscribe(rows: OrmSession) -> None:
    rows.add(User(id=1, email="a@example.com", password_hash=""))
    rows.flush()
    rows.add(Workspace(id=WORKSPACE, owner_id=1, name="a", plan="free"))
    rows.flush()
    url = "https://hooks.example.com/"
    rows.add(Webhook(id=uuid4(), workspace_id=WORKSPACE, url=url, events=["stt.completed"]))
