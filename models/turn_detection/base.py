"""Turn detection: whether a speaker has finished, by how the end of the speech sounds."""

from abc import ABC, abstractmethod

from models.audio import Pcm
from models.base import Engine


class TurnDetectionEngine(Engine, ABC):
    """Detector of the end of a turn."""

    @abstractmethod
    def completeness(self, pcm: Pcm) -> float:
        """Returns the probability that the turn is complete; blocking. `pcm` is float32 [n] at 16
        kHz, speech that ends with a short silence."""
