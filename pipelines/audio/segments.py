"""Speech segments of a recording: voice activity with hysteresis, cut to what an engine takes."""

from dataclasses import dataclass, field

import numpy as np

from configs.schema.transcription import DecodingProfile
from models.vad.base import VAD_SAMPLE_RATE, Probabilities

MAX_SEGMENT_S = 28.0  # under the 30 s that engines take
MIN_SEGMENT_S = 8.0  # a segment that is too long is cut after this, where it is quietest
JOIN_GAP_S = 1.5  # speech on both sides of a shorter pause goes into one segment
PADDING_S = 0.25  # kept on both sides of speech
PAUSE_S = 0.25  # longest pause within a span; speakers change there
SPEECH_PROBABILITY = 0.5
HYSTERESIS = 0.15  # speech ends this far below the probability that started it

Spans = tuple[tuple[int, int], ...]  # stretches [start, end), in samples at VAD_SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class SpeechSegment:
    """Samples from `start` up to `end`, at VAD_SAMPLE_RATE."""

    start: int
    end: int
    peak: float = field(default=1.0, compare=False)  # highest probability of speech in it


def find_speech_segments(
    probabilities: Probabilities, frame_samples: int, samples: int, profile: DecodingProfile
) -> list[SpeechSegment]:
    """Finds the speech of a recording of `samples`, in order and without overlap."""
    frame_ms = 1000 * frame_samples / VAD_SAMPLE_RATE
    min_silence = max(1, round(profile.min_silence_ms / frame_ms))
    spans = find_spans(probabilities, profile.vad_threshold, min_silence)
    spans = [span for span in spans if (span[1] - span[0]) * frame_ms >= profile.min_speech_ms]
    limit = int(MAX_SEGMENT_S * VAD_SAMPLE_RATE / frame_samples)
    padding = int(PADDING_S * VAD_SAMPLE_RATE / frame_samples)
    padded = [
        (max(0, start - padding), min(len(probabilities), end + padding)) for start, end in spans
    ]
    pieces = [piece for span in padded for piece in _cut(probabilities, span, limit)]
    packed: list[tuple[int, int]] = []
    gap = JOIN_GAP_S * VAD_SAMPLE_RATE / frame_samples
    for start, end in pieces:
        if packed and start - packed[-1][1] <= gap and end - packed[-1][0] <= limit:
            packed[-1] = (packed[-1][0], end)
        else:
            packed.append((max(start, packed[-1][1] if packed else 0), end))
    return [
        SpeechSegment(
            start * frame_samples,
            min(end * frame_samples, samples),
            float(probabilities[start:end].max()),
        )
        for start, end in packed
    ]


def spans_of(probabilities: Probabilities, frame_samples: int, segment: SpeechSegment) -> Spans:
    """Finds the stretches of speech within a segment, in samples from its start."""
    first, last = segment.start // frame_samples, -(-segment.end // frame_samples)
    pause = max(1, round(PAUSE_S * VAD_SAMPLE_RATE / frame_samples))
    spans = find_spans(probabilities[first:last], SPEECH_PROBABILITY, pause)
    length = segment.end - segment.start
    return tuple((start * frame_samples, min(end * frame_samples, length)) for start, end in spans)


def find_spans(
    probabilities: Probabilities, threshold: float, min_silence: int
) -> list[tuple[int, int]]:
    """Find runs of speech, as frame numbers [start, end)."""
    spans: list[tuple[int, int]] = []
    start: int | None = None
    silent_since: int | None = None
    low = max(threshold - HYSTERESIS, 0.01)
    for index, probability in enumerate(probabilities):
        if probability >= threshold:
            start = index if start is None else start
            silent_since = None
        elif start is not None and (probability < low or silent_since is not None):
            silent_since = index if silent_since is None else silent_since
            if index - silent_since + 1 >= min_silence:
                spans.append((start, silent_since))
                start = silent_since = None
    if start is not None:
        spans.append((start, len(probabilities) if silent_since is None else silent_since))
    return spans


def _cut(probabilities: Probabilities, span: tuple[int, int], limit: int) -> list[tuple[int, int]]:
    """Cut a span into pieces of at most `limit` frames, where speech is least likely."""
    start, end = span
    pieces = []
    while end - start > limit:
        earliest = start + int(limit * MIN_SEGMENT_S / MAX_SEGMENT_S)
        at = earliest + int(np.argmin(probabilities[earliest : start + limit]))
        pieces.append((start, at))
        start = at
    return [*pieces, (start, end)]
