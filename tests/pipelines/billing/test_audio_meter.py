"""Slices of live audio, on a clock of the test's own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.billing.ledger import change_credit, credit_of, discrepancies, open_account
from db.database import Database
from db.errors import DatabaseUnavailable
from pipelines.billing.audio_meter import SLICE_LASTS_S, SLICE_MS, AudioMeter
from pipelines.billing.billing import Billing, Charge
from pipelines.errors import InsufficientCredit
from tests.db.test_webhooks import plain
from tests.migrated import sqlite_database

WORKSPACE = 1
SLICE = 6000  # micro-USD


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with sqlite_database(tmp_path) as opened:
        yield opened


class Watched(Billing):
    """Says what it held, and fails while it is told to."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, load_yaml(PlansConfig, "plans").prices, plain)
        self.holds = 0
        self.is_down = False

    async def hold(self, *args, **kwargs) -> Charge:  # type: ignore[no-untyped-def]
        if self.is_down:
            raise DatabaseUnavailable("gone")
        self.holds += 1
        return await super().hold(*args, **kwargs)


class Session:
    """A meter with a clock that is set by hand."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.billing = Watched(database)
        self.now = 100.0
        self.meter = AudioMeter(self.billing, WORKSPACE, lambda: self.now)

    async def hear_until(self, seconds: float, step_s: float = 1.0) -> None:
        while self.meter.heard_ms < seconds * 1000:
            self.now += step_s
            await self.meter.cover(self.meter.heard_ms + round(step_s * 1000))
            await asyncio.sleep(0.002)  # for what is held beside it

    async def end(self) -> tuple[int, int]:
        """What was charged, and the credit that is left once all is settled."""
        await self.meter.settle()
        await self.billing.wait_for_settlements()
        assert await self.database.read(discrepancies) == []
        return self.meter.charged, await self.database.read(credit_of, WORKSPACE)


@pytest.fixture
async def session(database: Database) -> Session:
    await database.run(open_account, WORKSPACE, 10 * SLICE)
    return Session(database)


async def test_one_slice_is_held_until_its_end_comes_near(session: Session) -> None:
    await session.hear_until(30)
    assert session.billing.holds == 1
    await session.hear_until(50)
    assert session.billing.holds == 2
    assert await session.end() == (5000, 10 * SLICE - 5000)


async def test_slices_join_without_a_gap_or_an_overlap(session: Session) -> None:
    await session.hear_until(200)
    assert await session.end() == (20_000, 10 * SLICE - 20_000)


async def test_one_message_may_be_longer_than_a_slice(session: Session) -> None:
    await session.meter.cover(3 * SLICE_MS + 1)
    assert await session.end() == (3 * SLICE + 1, 7 * SLICE - 1)


async def test_a_database_that_is_away_between_the_ends_is_not_noticed(session: Session) -> None:
    await session.hear_until(35)
    session.billing.is_down = True
    await session.hear_until(55)
    session.billing.is_down = False
    await session.hear_until(100)
    assert await session.end() == (10_000, 9 * SLICE - 4000)


async def test_a_database_that_is_away_at_the_end_of_a_slice_is_told(session: Session) -> None:
    await session.hear_until(55)
    await asyncio.sleep(0.01)
    await session.hear_until(90)  # the next one was held in time
    session.billing.is_down = True
    with pytest.raises(DatabaseUnavailable):
        await session.hear_until(130)
    assert session.meter.heard_ms == 120_000
    assert (await session.end())[0] == 2 * SLICE


async def test_without_credit_nothing_more_is_heard_until_there_is_some(session: Session) -> None:
    await session.database.run(open_account, 2, SLICE)
    meter = AudioMeter(session.billing, 2, lambda: session.now)
    await meter.cover(59_000)
    with pytest.raises(InsufficientCredit):
        await meter.cover(61_000)
    assert meter.heard_ms == 59_000
    await session.database.run(change_credit, 2, "more", SLICE, "the test")
    await meter.cover(61_000)
    await meter.settle()
    assert meter.charged == 6100


async def test_credit_for_less_than_a_slice_is_heard_to_its_end(session: Session) -> None:
    await session.database.run(open_account, 2, SLICE + 1234)
    meter = AudioMeter(session.billing, 2, lambda: session.now)
    await meter.cover(60_000)
    await meter.cover(72_340)
    with pytest.raises(InsufficientCredit):
        await meter.cover(72_341)
    await meter.settle()
    await session.billing.wait_for_settlements()
    assert (meter.heard_ms, meter.charged) == (72_340, SLICE + 1234)
    assert await session.database.read(credit_of, 2) == 0


async def test_less_credit_than_for_a_second_is_none(session: Session) -> None:
    await session.database.run(open_account, 2, 99)
    meter = AudioMeter(session.billing, 2, lambda: session.now)
    with pytest.raises(InsufficientCredit, match=r"0\.000100 USD"):
        await meter.cover(10)
    await meter.settle()
    assert meter.charged == 0


async def test_audio_that_is_free_is_held_in_whole_slices(database: Database) -> None:
    billing = Watched(database)
    billing._prices = billing._prices.model_copy(update={"stt_second": 0})
    await database.run(open_account, WORKSPACE, 0)
    meter = AudioMeter(billing, WORKSPACE)
    await meter.cover(10 * SLICE_MS)
    await meter.settle()
    assert (billing.holds, meter.charged) == (10, 0)


async def test_a_slow_trickle_is_charged_before_its_hold_expires(session: Session) -> None:
    await session.meter.cover(1000)
    session.now += SLICE_LASTS_S + 1
    await session.meter.cover(2000)
    assert session.billing.holds == 2
    await session.end()
    assert session.meter.charged == 200


async def test_audio_that_was_lost_is_not_charged(session: Session) -> None:
    await session.hear_until(10)
    session.meter.forgive(4000)
    assert (await session.end())[0] == 600


async def test_leaving_while_a_slice_is_held_gives_it_back(session: Session) -> None:
    covering = asyncio.create_task(session.meter.cover(1000))
    await asyncio.sleep(0)
    covering.cancel()
    await asyncio.wait([covering])
    assert await session.end() == (0, 10 * SLICE)


async def test_it_is_settled_once(session: Session) -> None:
    await session.hear_until(10)
    await session.meter.settle()
    assert await session.end() == (1000, 10 * SLICE - 1000)
