"""How good speech sounds, as people would rate it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from models.audio import Pcm
from models.base import Engine

QUALITY_SAMPLE_RATE = 16_000  # Hz; every engine listens at this rate


@dataclass(frozen=True, slots=True)
class Quality:
    """Mean opinion scores, 1 (bad) to 5 (excellent)."""

    signal: float  # the speech itself
    background: float  # what sounds beside it
    overall: float


class QualityEngine(Engine, ABC):
    """Rates speech. Stateless; its calls block."""

    @abstractmethod
    def rate(self, pcm: Pcm) -> Quality:
        """Of a signal, float32 [n] at QUALITY_SAMPLE_RATE with n > 0."""
