"""Streams with an ample lead make way for those without; underruns are measured."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipelines.tts.pacing import AMPLE_LEAD_S, FairScheduler, PlaybackClock
from telemetry.metrics import REGISTRY
from tests.patience import PATIENCE_S


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def stream_of(
    scheduler: FairScheduler, clock: Clock, *, is_played: bool = True
) -> Iterator[PlaybackClock]:
    stream = PlaybackClock(scheduler, is_played=is_played, clock=clock)
    stream.start()
    yield stream
    stream.stop()


def test_a_lead_shrinks_while_the_audio_is_played() -> None:
    clock = Clock()
    stream = PlaybackClock(FairScheduler(), clock=clock)
    assert stream.lead_s == 0.0
    stream.audio_sent(3.0)
    clock.now += 1.0
    assert stream.lead_s == pytest.approx(2.0)
    clock.now += 5.0  # an underrun was heard: playback does not catch up
    stream.audio_sent(1.0)
    assert stream.lead_s == pytest.approx(1.0)


def test_a_stream_is_busy_until_its_lead_is_ample() -> None:
    scheduler, clock = FairScheduler(), Clock()
    with stream_of(scheduler, clock) as started, stream_of(scheduler, clock):
        assert scheduler.busy == 2
        started.audio_sent(AMPLE_LEAD_S + 10)
        assert scheduler.busy == 1
    assert scheduler.busy == 0


async def test_a_stream_with_an_ample_lead_waits_while_another_has_none() -> None:
    scheduler, clock = FairScheduler(), Clock()
    with stream_of(scheduler, clock) as rich:
        rich.audio_sent(AMPLE_LEAD_S + 10)
        with stream_of(scheduler, clock) as poor:
            await scheduler.admit(poor)  # at once
            waiting = asyncio.create_task(scheduler.admit(rich))
            await asyncio.sleep(0.25)
            assert not waiting.done()
            poor.audio_sent(AMPLE_LEAD_S + 10)
            async with asyncio.timeout(PATIENCE_S):
                await waiting


async def test_streams_with_an_ample_lead_use_the_engine_one_at_a_time() -> None:
    scheduler, clock = FairScheduler(), Clock()
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


async def test_streams_of_a_slow_engine_start_one_after_another() -> None:
    scheduler, clock = FairScheduler(), Clock()
    with stream_of(scheduler, clock) as first, stream_of(scheduler, clock) as second:
        await scheduler.admit(first, is_slow=True)  # at once
        await scheduler.admit(second)  # of a fast engine, too
        waiting = asyncio.create_task(scheduler.admit(second, is_slow=True))
        first.audio_sent(1.0)
        await asyncio.sleep(0.1)  # also while the client takes it
        assert not waiting.done()
        first.audio_taken()
        clock.now += 0.6
        await asyncio.sleep(0.1)
        assert not waiting.done()
        first.audio_sent(2.0)
        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_no_stream_waits_for_long_for_older_ones() -> None:
    scheduler, clock = FairScheduler(), Clock()
    with stream_of(scheduler, clock) as first, stream_of(scheduler, clock) as second:
        first.audio_sent(1.0)
        first.audio_taken()
        waiting = asyncio.create_task(scheduler.admit(second, is_slow=True))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        clock.now += 5.0
        async with asyncio.timeout(PATIENCE_S):
            await waiting


@pytest.mark.parametrize("is_played", [True, False])
async def test_no_stream_waits_for_a_client_that_does_not_read_or_for_a_file(
    is_played: bool,
) -> None:
    scheduler, clock = FairScheduler(), Clock()
    with (
        stream_of(scheduler, clock, is_played=is_played) as first,
        stream_of(scheduler, clock) as second,
    ):
        first.audio_sent(1.0)
        clock.now += 0.6
        async with asyncio.timeout(PATIENCE_S):
            await scheduler.admit(second, is_slow=True)


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"antiphon_{name}", labels) or 0.0


def play(clock: Clock, *steps: tuple[float, float], consumer_s: float = 0.0) -> PlaybackClock:
    """Each step: seconds of work, and of the speech that it gives; `consumer_s` follows each."""
    stream = PlaybackClock(FairScheduler(), asked_at=clock.now, clock=clock)
    for work_s, audio_s in steps:
        clock.now += work_s
        stream.audio_sent(audio_s)
        clock.now += consumer_s
        stream.audio_taken()
    return stream


def gaps(clock: Clock, *steps: tuple[float, float], consumer_s: float = 0.0) -> float:
    before = value("tts_gap_seconds_total")
    play(clock, *steps, consumer_s=consumer_s).count(is_finished=True)
    return value("tts_gap_seconds_total") - before


def test_speech_ahead_of_its_playback_has_no_gap() -> None:
    smooth = value("tts_streams_total", outcome="smooth")
    assert gaps(Clock(), (0.4, 1), (0.9, 1), (1.0, 1)) == 0
    assert value("tts_streams_total", outcome="smooth") == smooth + 1


def test_a_gap_is_as_long_as_the_audio_is_late() -> None:
    late = value("tts_streams_total", outcome="late")
    assert gaps(Clock(), (0.4, 1), (1.5, 1), (1.2, 1)) == pytest.approx(0.7)
    assert value("tts_streams_total", outcome="late") == late + 1


def test_a_client_that_takes_its_chunks_late_makes_no_gap() -> None:
    assert gaps(Clock(), (0.1, 0.5), (0.0, 0.5), consumer_s=3.0) == 0


def test_first_audio_is_measured_from_when_the_text_came() -> None:
    name = "tts_first_audio_seconds_sum"
    before, clock = value(name), Clock()
    gaps(clock, (0.25, 1), (0.1, 1))
    assert value(name) - before == pytest.approx(0.25)


def test_a_stream_that_its_client_leaves_is_neither_smooth_nor_late() -> None:
    left, clock = value("tts_streams_total", outcome="left"), Clock()
    play(clock, (0, 1)).count(is_finished=False)
    assert value("tts_streams_total", outcome="left") == left + 1


def test_silence_counts_no_stream() -> None:
    before = sum(value("tts_streams_total", outcome=one) for one in ("smooth", "late", "left"))
    assert gaps(Clock()) == 0
    after = sum(value("tts_streams_total", outcome=one) for one in ("smooth", "late", "left"))
    assert after == before
