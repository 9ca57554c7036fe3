"""Mu-law, a byte a sample (ITU-T G.711)."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm


def decode_mulaw(data: bytes) -> Pcm:
    """Mu-law bytes to float32 [n] in (-1, 1)."""
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
