"""What is measured of a stream of speech: how soon it starts, and its gaps."""

import pytest

from pipelines.tts.metrics import UnderrunMeter
from telemetry.metrics import REGISTRY


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"antiphon_{name}", labels) or 0.0


def play(clock: Clock, *steps: tuple[float, float], consumer_s: float = 0.0) -> UnderrunMeter:
    """Each step: seconds of work, and of the speech that it gives; `consumer_s` follows each."""
    meter = UnderrunMeter(0.0, clock)
    for work_s, audio_s in steps:
        clock.now += work_s
        meter.sends(audio_s)
        clock.now += consumer_s
        meter.pulls()
    return meter


def gaps(clock: Clock, *steps: tuple[float, float], consumer_s: float = 0.0) -> float:
    before = value("tts_gap_seconds_total")
    with play(clock, *steps, consumer_s=consumer_s) as meter:
        meter.finish()
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
    with play(clock, (0, 1)):
        pass
    assert value("tts_streams_total", outcome="left") == left + 1


def test_silence_counts_no_stream() -> None:
    before = sum(value("tts_streams_total", outcome=one) for one in ("smooth", "late", "left"))
    assert gaps(Clock()) == 0
    after = sum(value("tts_streams_total", outcome=one) for one in ("smooth", "late", "left"))
    assert after == before
