"""The scheduler of streams by their lead, and the metrics of underruns."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from pipelines.tts.pacing import (
    AMPLE_LEAD_S,
    FIRST_DEADLINE_S,
    LONGEST_WAIT_S,
    OVERLAP_LEAD_S,
    SAFETY,
    USUAL_S,
    PlaybackClock,
    StreamScheduler,
)
from telemetry.metrics import REGISTRY
from tests.clock import Clock
from tests.patience import PATIENCE_S


@contextmanager
def stream_of(
    scheduler: StreamScheduler, clock: Clock, *, is_played: bool = True
) -> Iterator[PlaybackClock]:
    stream = PlaybackClock(scheduler, is_played=is_played, clock=clock)
    stream.start()
    yield stream
    stream.stop()


def test_the_lead_of_a_stream_shrinks_while_its_audio_is_played() -> None:
    clock = Clock()
    stream = PlaybackClock(StreamScheduler(), clock=clock)
    assert stream.lead_s == 0.0
    stream.audio_sent(3.0)
    clock.now += 1.0
    assert stream.lead_s == pytest.approx(2.0)
    clock.now += 5.0  # an underrun was heard: playback does not catch up
    stream.audio_sent(1.0)
    assert stream.lead_s == pytest.approx(1.0)


def test_the_scheduler_counts_streams_without_an_ample_lead_as_busy() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock) as started, stream_of(scheduler, clock):
        assert scheduler.busy == 2
        started.audio_sent(AMPLE_LEAD_S + 10)
        assert scheduler.busy == 1
    assert scheduler.busy == 0


async def test_a_stream_with_an_ample_lead_waits_for_one_without() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock) as ahead:
        ahead.audio_sent(AMPLE_LEAD_S + 10)
        with stream_of(scheduler, clock) as behind:
            await scheduler.admit(behind)  # at once
            waiting = asyncio.create_task(scheduler.admit(ahead))
            await asyncio.sleep(0.25)
            assert not waiting.done()
            behind.audio_sent(AMPLE_LEAD_S + 10)
            async with asyncio.timeout(PATIENCE_S):
                await waiting


async def test_a_stream_has_two_chunks_in_the_engine_only_while_none_waits() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock) as ahead, stream_of(scheduler, clock, is_played=False) as file:
        assert not scheduler.may_overlap(ahead)
        ahead.audio_sent(OVERLAP_LEAD_S + 1)
        assert not scheduler.may_overlap(ahead)  # the file waits
        file.stop()
        assert scheduler.may_overlap(ahead)
        clock.now += 2.0
        assert not scheduler.may_overlap(ahead)
    with stream_of(scheduler, clock, is_played=False) as file:
        assert scheduler.may_overlap(file)
    with stream_of(scheduler, clock) as alone:
        alone.audio_sent(AMPLE_LEAD_S + 10)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(scheduler.admit(alone), scheduler.admit(alone))


async def test_streams_with_an_ample_lead_use_the_engine_one_at_a_time() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock) as one, stream_of(scheduler, clock) as two:
        one.audio_sent(AMPLE_LEAD_S + 10)
        two.audio_sent(AMPLE_LEAD_S + 10)
        done = await scheduler.admit(one)
        waiting = asyncio.create_task(scheduler.admit(two))
        await asyncio.sleep(0.25)
        assert not waiting.done()
        done()
        async with asyncio.timeout(PATIENCE_S):
            (await waiting)()
        waiting = asyncio.create_task(scheduler.admit(one))
        clock.now += 15  # most of it was played: no more waiting for others
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_streams_beyond_a_slow_engines_capacity_start_later() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with ExitStack() as stack:
        older = [stack.enter_context(stream_of(scheduler, clock)) for _ in range(4)]
        last = stack.enter_context(stream_of(scheduler, clock))
        ends = [await scheduler.admit(stream, cost=0.25) for stream in older]
        await scheduler.admit(last, cost=0.01)  # of a fast engine, too
        clock.now += 1.0
        for end in ends:
            end()
        waiting = asyncio.create_task(scheduler.admit(last, cost=0.25))
        for stream in older:
            stream.audio_sent(1.0)
        await asyncio.sleep(0.1)  # also while the clients take it
        assert not waiting.done()
        for stream in older:
            stream.audio_taken()
        clock.now += 0.6
        await asyncio.sleep(0.1)
        assert not waiting.done()
        for stream in older:
            stream.audio_sent(2.0)
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_a_stream_waits_for_older_ones_only_for_a_time() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock) as first, stream_of(scheduler, clock) as second:
        first.audio_sent(1.0)
        first.audio_taken()
        waiting = asyncio.create_task(scheduler.admit(second, cost=0.9))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        clock.now += LONGEST_WAIT_S
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_a_text_that_follows_speech_is_due_when_that_has_been_heard() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock):  # has begun nothing yet, and is older
        following = PlaybackClock(scheduler, clock=clock, before_s=0.7)
        assert following.deadline_s == following.lead_s == pytest.approx(0.7)
        async with asyncio.timeout(PATIENCE_S):
            await scheduler.admit(following, cost=0.9)  # at once
    clock.now += 1.0
    began = value("tts_first_audio_seconds_count")
    before_s = value("tts_gap_seconds_total")
    following.audio_sent(1.0)
    following.count(is_finished=True)
    assert value("tts_first_audio_seconds_count") == began + 1
    assert value("tts_gap_seconds_total") - before_s == pytest.approx(0.3)


async def test_the_work_of_an_engine_is_that_of_its_last_speech() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    assert scheduler.cost(0.25) == 0.25 and scheduler.cost(0.01) == 0.01
    with stream_of(scheduler, clock) as one, stream_of(scheduler, clock) as two:
        for _ in range(60):
            ends = [await scheduler.admit(stream, cost=0.25) for stream in (one, two)]
            for end, stream in zip(ends, (one, two), strict=True):
                clock.now += 0.8
                stream.audio_sent(1.0)
                stream.audio_taken()
                end()
            clock.now += 1.0  # without work
    assert scheduler.cost(0.25) == pytest.approx(0.8, rel=0.15)
    assert scheduler.cost(0.01) == 0.01


def test_a_turn_leaves_every_stream_its_own_before_it_runs_dry() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    assert scheduler.longest_s(0.25) == math.inf
    with ExitStack() as stack:
        streams = [stack.enter_context(stream_of(scheduler, clock)) for _ in range(3)]
        for stream, lead_s in zip(streams, (3.0, 1.0, 1.2), strict=True):
            stream.audio_sent(lead_s)
            stream.audio_taken()
        usual = 0.25 * (USUAL_S + 5.2) / USUAL_S  # as nothing was computed for the speech
        assert scheduler.cost(usual) == pytest.approx(0.25)
        turn_s = SAFETY / 0.25
        assert scheduler.longest_s(usual) == pytest.approx(0.6 * turn_s)  # two within 1.2 s
        clock.now += 0.5
        assert scheduler.longest_s(usual) == pytest.approx(0.35 * turn_s)
        starting = stack.enter_context(stream_of(scheduler, clock))
        clock.now += FIRST_DEADLINE_S
        assert starting.deadline_s == scheduler.longest_s(usual) == 0.0
        assert scheduler.longest_s(2 * usual) == math.inf  # too much for the engine


@pytest.mark.parametrize("is_played", [True, False])
async def test_streams_wait_neither_for_stalled_readers_nor_for_files(is_played: bool) -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with (
        stream_of(scheduler, clock, is_played=is_played) as first,
        stream_of(scheduler, clock) as second,
    ):
        first.audio_sent(1.0)
        clock.now += 0.6
        async with asyncio.timeout(PATIENCE_S):
            await scheduler.admit(second, cost=0.9)


async def test_an_unread_stream_is_idle_and_delays_no_other() -> None:
    scheduler, clock = StreamScheduler(), Clock()
    with stream_of(scheduler, clock) as stalled, stream_of(scheduler, clock) as ahead:
        stalled.audio_sent(1.0)
        ahead.audio_sent(AMPLE_LEAD_S + 10)
        assert scheduler.busy == 1
        waiting = asyncio.create_task(scheduler.admit(ahead))
        await asyncio.sleep(0.25)
        assert not waiting.done()
        clock.now += 0.6
        assert scheduler.busy == 0
        async with asyncio.timeout(PATIENCE_S):
            (await waiting)()
        stalled.audio_taken()  # it reads again, and needs more before the other
        assert scheduler.busy == 1
        waiting = asyncio.create_task(scheduler.admit(ahead))
        await asyncio.sleep(0.25)
        assert not waiting.done()
        waiting.cancel()


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"antiphon_{name}", labels) or 0.0


OUTCOMES = ("smooth", "late", "left")


def counted(
    *steps: tuple[float, float], consumer_s: float = 0.0, is_finished: bool = True
) -> tuple[float, list[str]]:
    """The seconds of gaps that a stream adds to the metric, and the outcomes that it counts.

    Each step: seconds of work, and of its audio; the client takes it `consumer_s` later.
    """
    before_s = value("tts_gap_seconds_total")
    before = {outcome: value("tts_streams_total", outcome=outcome) for outcome in OUTCOMES}
    clock = Clock()
    stream = PlaybackClock(StreamScheduler(), asked_at=clock.now, clock=clock)
    for work_s, audio_s in steps:
        clock.now += work_s
        stream.audio_sent(audio_s)
        clock.now += consumer_s
        stream.audio_taken()
    stream.count(is_finished=is_finished)
    added = [
        outcome
        for outcome in OUTCOMES
        if value("tts_streams_total", outcome=outcome) > before[outcome]
    ]
    return value("tts_gap_seconds_total") - before_s, added


def test_underruns_are_as_long_as_the_audio_is_late() -> None:
    assert counted((0.4, 1), (0.9, 1), (1.0, 1)) == (0, ["smooth"])
    gap_s, outcomes = counted((0.4, 1), (1.5, 1), (1.2, 1))
    assert gap_s == pytest.approx(0.7) and outcomes == ["late"]
    # A client that takes its chunks late causes no underrun.
    assert counted((0.1, 0.5), (0.0, 0.5), consumer_s=3.0) == (0, ["smooth"])
    assert counted((0, 1), is_finished=False) == (0, ["left"])
    assert counted() == (0, []), "a stream without audio is not counted"


def test_time_to_first_audio_is_measured_from_the_arrival_of_the_text() -> None:
    before_s = value("tts_first_audio_seconds_sum")
    counted((0.25, 1), (0.1, 1))
    assert value("tts_first_audio_seconds_sum") - before_s == pytest.approx(0.25)
