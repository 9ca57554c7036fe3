"""Mono audio in memory: the chunk every engine yields, and the conversions at the edges."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import soxr
from numpy.typing import NDArray

Pcm: TypeAlias = NDArray[np.float32]
"""Samples of one mono signal, float32 [n] in [-1, 1]."""


@dataclass(frozen=True, slots=True)
class WordTime:
    """When a word sounds; carried by the chunk in which it begins, it may end in a later one."""

    text_start: int  # offset into the text of the request
    text_end: int
    start_s: float  # seconds from the start of the chunk
    end_s: float


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A piece of speech of any length."""

    pcm: Pcm  # float32 [n] in [-1, 1]
    sample_rate: int  # Hz
    words: tuple[WordTime, ...] = ()  # of those that begin in it, when they were asked for

    @property
    def duration_s(self) -> float:
        return len(self.pcm) / self.sample_rate


def resample(pcm: Pcm, from_hz: int, to_hz: int) -> Pcm:
    """Changes the sample rate of a whole signal; for streams use soxr.ResampleStream."""
    if from_hz == to_hz:
        return pcm
    return np.asarray(soxr.resample(pcm, from_hz, to_hz, quality="HQ"), dtype=np.float32)


def float_to_pcm16(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to little-endian int16 bytes; louder samples are clipped."""
    return (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


def pcm16_to_float(data: bytes) -> Pcm:
    """Little-endian int16 bytes to float32 [n] in [-1, 1)."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768.0
