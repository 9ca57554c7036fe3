"""Turn detection: whether a speaker has finished, by how the end of the speech sounds."""

from abc import ABC, abstractmethod

from models.audio import Pcm
from models.base import Engine


class TurnDetectionEngine(Engine, ABC):
    """Judges the end of an utterance."""

    @abstractmethod
    def completeness(self, pcm: Pcm) -> float:
        """The probability that the turn is complete, of speech that ends with a short silence,
        float32 [n] at 16 kHz. Blocking."""
