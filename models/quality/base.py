"""Speech quality: predicted ratings by listeners (mean opinion scores)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from models.audio import Pcm
from models.base import Engine

QUALITY_SAMPLE_RATE = 16_000  # Hz; the input of every engine


@dataclass(frozen=True, slots=True)
class Quality:
    """Mean opinion scores, 1 (bad) to 5 (excellent)."""

    signal: float  # the speech itself
    background: float  # the noise behind it
    overall: float


class QualityEngine(Engine, ABC):
    """Rates speech. Stateless; its calls block."""

    @abstractmethod
    def rate(self, pcm: Pcm) -> Quality:
        """The scores of a signal, float32 [n] at QUALITY_SAMPLE_RATE with n > 0."""
