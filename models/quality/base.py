"""Interface of speech quality engines, which predict listeners' ratings (mean opinion scores)."""

from abc import ABC, abstractmethod

from models.audio import Pcm
from models.base import Engine

QUALITY_SAMPLE_RATE = 16_000  # Hz; the input of every engine


class QualityEngine(Engine, ABC):
    """Rater of speech. Stateless; its calls block."""

    @abstractmethod
    def rate(self, pcm: Pcm) -> float:
        """Predicts the mean opinion score, 1 (bad) to 5, of float32 [n] at 16 kHz with n > 0."""
