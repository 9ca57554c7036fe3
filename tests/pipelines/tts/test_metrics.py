"""What is measured of a stream of speech: how soon it begins, and its gaps."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
import pytest

from models.audio import AudioChunk
from pipelines.tts.chunks import SpokenChunk
from pipelines.tts.metrics import underrun_metrics
from telemetry.metrics import REGISTRY


class Clock:
    """A clock that only moves when it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def spoken(duration_s: float) -> SpokenChunk:
    pcm = np.zeros(round(duration_s * 1000), np.float32)
    return SpokenChunk(AudioChunk(pcm, 1000), (), 0)


async def made(clock: Clock, *steps: tuple[float, float]) -> AsyncGenerator[SpokenChunk, None]:
    """Each step: seconds of work, and of the speech that it gives."""
    for work_s, audio_s in steps:
        clock.now += work_s
        yield spoken(audio_s)


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"antiphon_{name}", labels) or 0.0


async def gaps(clock: Clock, *steps: tuple[float, float], consumer_s: float = 0.0) -> float:
    before = value("tts_gap_seconds_total")
    async with aclosing(underrun_metrics(made(clock, *steps), 0.0, clock)) as chunks:
        async for _ in chunks:
            clock.now += consumer_s
    return value("tts_gap_seconds_total") - before


async def test_speech_that_is_ahead_of_its_listener_has_no_gap() -> None:
    smooth = value("tts_streams_total", outcome="smooth")
    assert await gaps(Clock(), (0.4, 1), (0.9, 1), (1.0, 1)) == 0
    assert value("tts_streams_total", outcome="smooth") == smooth + 1


async def test_a_gap_is_as_long_as_the_audio_is_late() -> None:
    late = value("tts_streams_total", outcome="late")
    assert await gaps(Clock(), (0.4, 1), (1.5, 1), (1.2, 1)) == pytest.approx(0.7)
    assert value("tts_streams_total", outcome="late") == late + 1


async def test_a_listener_who_takes_chunks_late_has_made_the_gap_himself() -> None:
    assert await gaps(Clock(), (0.1, 0.5), (0.0, 0.5), consumer_s=3.0) == 0


async def test_first_audio_is_measured_from_the_coming_of_the_text() -> None:
    name = "tts_first_audio_seconds_sum"
    before, clock = value(name), Clock()
    await gaps(clock, (0.25, 1), (0.1, 1))
    assert value(name) - before == pytest.approx(0.25)


async def test_a_stream_that_is_left_is_neither_smooth_nor_late() -> None:
    left, clock = value("tts_streams_total", outcome="left"), Clock()
    async with aclosing(underrun_metrics(made(clock, (0, 1), (0, 1)), 0.0, clock)) as chunks:
        await anext(chunks)
    assert value("tts_streams_total", outcome="left") == left + 1


async def test_silence_counts_no_stream() -> None:
    before = sum(value("tts_streams_total", outcome=one) for one in ("smooth", "late", "left"))
    assert await gaps(Clock()) == 0
    after = sum(value("tts_streams_total", outcome=one) for one in ("smooth", "late", "left"))
    assert after == before
