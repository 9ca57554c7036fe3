"""Mono audio in memory: the chunk every engine yields, and the conversions at the edges."""

from dataclasses import dataclass
from functools import lru_cache
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
    """Changes the sample rate of a whole signal."""
    if from_hz == to_hz:
        return pcm
    return np.asarray(soxr.resample(pcm, from_hz, to_hz, quality="HQ"), dtype=np.float32)


class StreamResampler:
    """Consecutive pcm at one rate to another; passes it through where both are the same.

    `quality` is soxr's: HQ for sound that people hear.
    """

    def __init__(self, from_hz: int, to_hz: int, quality: str = "HQ") -> None:
        self.from_hz = from_hz
        self._stream: soxr.ResampleStream | None = None
        if from_hz != to_hz:
            self._stream = soxr.ResampleStream(from_hz, to_hz, 1, dtype="float32", quality=quality)

    def process(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """float32 [n] to what is ready of it; with `last` also what was held back."""
        if self._stream is None:
            return pcm
        return np.asarray(self._stream.resample_chunk(pcm, last=last), dtype=np.float32)

    def flush(self) -> Pcm:
        """The samples held back; the stream has ended."""
        return self.process(np.zeros(0, dtype=np.float32), last=True)


def float_to_pcm16(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to little-endian int16 bytes; louder samples are clipped."""
    return (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype("<i2").tobytes()


def pcm16_to_float(data: bytes) -> Pcm:
    """Little-endian int16 bytes to float32 [n] in [-1, 1)."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768.0


def decode_mulaw(data: bytes) -> Pcm:
    """Mu-law bytes (ITU-T G.711) to float32 [n] in (-1, 1)."""
    samples: Pcm = _samples()[np.frombuffer(data, np.uint8)]
    return samples


def encode_mulaw(pcm: Pcm) -> bytes:
    """float32 [n] in [-1, 1] to mu-law bytes; louder samples are clipped."""
    linear = (np.clip(pcm, -1.0, 1.0) * 32767.0).round().astype(np.int16)
    return _codes()[linear.view(np.uint16)].tobytes()


def _levels() -> NDArray[np.int32]:
    """The int16 level of each byte; G.711 inverts all bits of a byte."""
    bits = ~np.arange(256, dtype=np.uint8)
    segment, step = (bits >> 4) & 7, (bits & 15).astype(np.int32)
    magnitude = ((step << 3) + 132 << segment) - 132
    return np.asarray(np.where(bits & 128, -magnitude, magnitude), np.int32)


@lru_cache(maxsize=1)
def _samples() -> Pcm:
    return np.asarray(_levels() / 32768.0, np.float32)


@lru_cache(maxsize=1)
def _codes() -> NDArray[np.uint8]:
    """The code of every int16, uint8 [65536], indexed by its bits read as unsigned."""
    levels = _levels()
    # The two zeros are one here; G.711 decides half-way between two levels.
    rising = np.concatenate([np.arange(0, 127), np.arange(255, 127, -1)])
    between = (levels[rising][:-1] + levels[rising][1:]) / 2
    linear = np.arange(65_536, dtype=np.uint16).view(np.int16)
    return np.asarray(rising[np.searchsorted(between, linear)], dtype=np.uint8)
