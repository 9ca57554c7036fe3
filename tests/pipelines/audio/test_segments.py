"""Speech segments from the probabilities of voice activity detection."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from configs.schema.transcription import DecodingProfile
from models.vad.base import VAD_SAMPLE_RATE
from pipelines.audio.segments import MAX_SEGMENT_S, SpeechSegment, find_speech_segments

FRAME = 512


def find(probabilities: list[float], **options: int) -> list[SpeechSegment]:
    return find_speech_segments(
        np.array(probabilities, np.float32),
        FRAME,
        len(probabilities) * FRAME,
        DecodingProfile.model_validate(options),
    )


def test_silence_has_no_speech_segment() -> None:
    assert find([0.0] * 500) == []
    assert find([]) == []


def test_a_speech_segment_includes_some_silence_around_the_speech() -> None:
    (segment,) = find([0.0] * 100 + [0.9] * 50 + [0.0] * 100)
    assert 90 * FRAME < segment.start < 100 * FRAME
    assert 150 * FRAME < segment.end < 160 * FRAME


def test_a_click_gives_no_speech_segment() -> None:
    assert find([0.0] * 50 + [0.9] * 2 + [0.0] * 50) == []


def test_a_short_pause_joins_speech_segments_and_a_long_one_separates_them() -> None:
    assert len(find([0.9] * 60 + [0.0] * 40 + [0.9] * 60)) == 1
    assert len(find([0.9] * 60 + [0.0] * 150 + [0.9] * 60)) == 2


def test_long_speech_is_cut_where_its_speech_probability_is_lowest() -> None:
    probabilities = [0.9] * 2000
    probabilities[700] = 0.6
    first, second, *_ = find(probabilities)
    assert first.end == second.start == 700 * FRAME


@given(st.lists(st.floats(0, 1, width=32), max_size=3000))
def test_speech_segments_are_ordered_and_within_the_limit(probabilities: list[float]) -> None:
    segments = find(probabilities, min_speech_ms=0, min_silence_ms=100)
    at = 0
    for segment in segments:
        assert at <= segment.start < segment.end <= len(probabilities) * FRAME
        assert segment.end - segment.start <= MAX_SEGMENT_S * VAD_SAMPLE_RATE
        at = segment.end
