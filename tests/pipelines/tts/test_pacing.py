"""Streams with plenty make way for those without."""

import asyncio

import pytest

from pipelines.tts.pacing import FAR_S, FairScheduler, PlaybackClock
from tests.patience import PATIENCE_S


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lead_shrinks_while_the_listener_hears_it() -> None:
    clock = Clock()
    pace = PlaybackClock(FairScheduler(), 0.0, clock)
    assert pace.ahead_s == 0.0
    pace.gave(3.0)
    clock.now += 1.0
    assert pace.ahead_s == pytest.approx(2.0)
    clock.now += 5.0  # a gap was heard: the listener does not catch up
    pace.gave(1.0)
    assert pace.ahead_s == pytest.approx(1.0)


def test_a_stream_is_busy_until_its_listener_has_plenty() -> None:
    rota, clock = FairScheduler(), Clock()
    with PlaybackClock(rota, 5.0, clock) as begun, PlaybackClock(rota, 5.0, clock):
        assert rota.busy == 2
        begun.gave(FAR_S + 10)
        assert rota.busy == 1
    assert rota.busy == 0


async def test_a_stream_with_plenty_waits_while_another_is_short() -> None:
    rota, clock = FairScheduler(), Clock()
    with PlaybackClock(rota, 0.0, clock) as rich:
        rich.gave(FAR_S + 10)
        with PlaybackClock(rota, 0.0, clock) as poor:
            await rota.turn(poor)  # at once
            waiting = asyncio.create_task(rota.turn(rich))
            await asyncio.sleep(0.25)
            assert not waiting.done()
            poor.gave(FAR_S + 10)
            async with asyncio.timeout(PATIENCE_S):
                await waiting


async def test_streams_with_plenty_use_the_engine_one_at_a_time() -> None:
    rota, clock = FairScheduler(), Clock()
    with PlaybackClock(rota, 0.0, clock) as one, PlaybackClock(rota, 0.0, clock) as two:
        one.gave(FAR_S + 10)
        two.gave(FAR_S + 10)
        done = await rota.turn(one)
        waiting = asyncio.create_task(rota.turn(two))
        await asyncio.sleep(0.25)
        assert not waiting.done()
        done()
        async with asyncio.timeout(PATIENCE_S):
            (await waiting)()
        waiting = asyncio.create_task(rota.turn(one))
        clock.now += 15  # its listener has heard most of it: no more waiting for others
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_streams_of_a_slow_engine_begin_one_after_the_other() -> None:
    rota, clock = FairScheduler(), Clock()
    with PlaybackClock(rota, 5.0, clock) as first, PlaybackClock(rota, 5.0, clock) as second:
        await rota.turn(first, is_slow=True)  # at once
        await rota.turn(second)  # of a fast engine, too
        waiting = asyncio.create_task(rota.turn(second, is_slow=True))
        first.gave(1.0)
        await asyncio.sleep(0.1)  # also while the reader takes it
        assert not waiting.done()
        first.taken()
        clock.now += 0.6
        await asyncio.sleep(0.1)
        assert not waiting.done()
        first.gave(2.0)
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_nobody_waits_for_long_for_those_before_him() -> None:
    rota, clock = FairScheduler(), Clock()
    with PlaybackClock(rota, 5.0, clock) as first, PlaybackClock(rota, 5.0, clock) as second:
        first.gave(1.0)
        first.taken()
        waiting = asyncio.create_task(rota.turn(second, is_slow=True))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        clock.now += 5.0
        async with asyncio.timeout(PATIENCE_S):
            await waiting


@pytest.mark.parametrize("slack_s", [5.0, 10.0])
async def test_nobody_waits_for_a_reader_who_does_not_read_or_for_a_file(slack_s: float) -> None:
    rota, clock = FairScheduler(), Clock()
    with PlaybackClock(rota, slack_s, clock) as first, PlaybackClock(rota, 5.0, clock) as second:
        if slack_s == 5.0:
            first.gave(1.0)
            clock.now += 0.6
        async with asyncio.timeout(PATIENCE_S):
            await rota.turn(second, is_slow=True)
