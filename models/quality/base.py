"""How good speech sounds, as people would rate it."""

from dataclasses import dataclass
from typing import Protocol

from models.audio import Pcm

QUALITY_SAMPLE_RATE = 16_000  # Hz; every engine listens at this rate


@dataclass(frozen=True, slots=True)
class Quality:
    """Mean opinion scores, 1 (bad) to 5 (excellent)."""

    signal: float  # the speech itself
    background: float  # what sounds beside it
    overall: float


class QualityEngine(Protocol):
    """Rates speech. A shared instance without state; its calls block."""

    def rate(self, pcm: Pcm) -> Quality:
        """Of a signal, float32 [n] at QUALITY_SAMPLE_RATE with n > 0."""
        ...
