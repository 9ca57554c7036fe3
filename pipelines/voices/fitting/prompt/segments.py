"""Selects the segment of a recording that an engine imitates: clear speech between two pauses."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from configs.schema.custom_voices import PromptConfig
from models.audio import Pcm
from models.vad.base import VAD_SAMPLE_RATE, Probabilities, VADEngine
from pipelines.audio.measures import clipped_share, snr_db
from pipelines.audio.segments import find_spans

THRESHOLD = 0.5  # probability of speech
PAUSE_S = 0.2  # a shorter one may be within a word
EDGE_S = 0.15  # of the pause, kept on both sides
ENOUGH_SNR_DB = 40.0  # more is inaudible
WEIGHTS = {"snr": 1.0, "speech": 1.0, "length": 0.5, "clipped": 100.0}


@dataclass(frozen=True, slots=True)
class PromptSegment:
    """Samples from `start` up to `end`, at VAD_SAMPLE_RATE."""

    start: int
    end: int
    score: float  # higher is better


def best_prompt_segment(pcm: Pcm, vad: VADEngine, config: PromptConfig) -> PromptSegment | None:
    """Of a signal, float32 [n] at VAD_SAMPLE_RATE; None where no two pauses are so far apart.

    Long, with little silence in it, little noise and no clipping is best.
    """
    probabilities = vad.probabilities(pcm)
    frames_a_second = VAD_SAMPLE_RATE / vad.capabilities.frame_samples
    spans = find_spans(probabilities, THRESHOLD, max(1, round(PAUSE_S * frames_a_second)))
    shortest = round(config.min_seconds * frames_a_second)
    longest = round((config.max_seconds - 2 * EDGE_S) * frames_a_second)
    found = (
        _scored(pcm, probabilities, vad.capabilities.frame_samples, first, last, config)
        for first, last in _between_pauses(spans, shortest, longest)
    )
    return max(found, key=lambda segment: segment.score, default=None)


def _between_pauses(
    spans: list[tuple[int, int]], shortest: int, longest: int
) -> Iterator[tuple[int, int]]:
    """Every run of spans whose length is within bounds, as frames."""
    for index, (first, _) in enumerate(spans):
        for _, last in spans[index:]:
            if last - first > longest:
                break
            if last - first >= shortest:
                yield first, last


def _scored(
    pcm: Pcm,
    probabilities: Probabilities,
    frame_samples: int,
    first: int,
    last: int,
    config: PromptConfig,
) -> PromptSegment:
    inside = probabilities[first:last]
    is_speech = inside >= THRESHOLD
    cut = pcm[first * frame_samples : last * frame_samples]
    score = (
        WEIGHTS["snr"] * min(snr_db(cut, inside, is_speech, frame_samples) / ENOUGH_SNR_DB, 1.0)
        + WEIGHTS["speech"] * float(np.mean(is_speech))
        + WEIGHTS["length"] * len(cut) / VAD_SAMPLE_RATE / config.max_seconds
        - WEIGHTS["clipped"] * clipped_share(cut)
    )
    edge = round(EDGE_S * VAD_SAMPLE_RATE)
    start = max(0, first * frame_samples - edge)
    return PromptSegment(start, min(len(pcm), last * frame_samples + edge), score)
