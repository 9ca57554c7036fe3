"""Audio watermarking: a mark in speech that is not heard, and that a program finds."""

from abc import ABC, abstractmethod
from typing import Protocol

from models.audio import Pcm
from models.base import Engine


class Marking(Protocol):
    """Marks one stream of consecutive pcm. Blocking, for one thread at a time."""

    def process(self, pcm: Pcm) -> Pcm:
        """What can be given after `pcm`, float32 [n]; the last part waits for what follows it."""
        ...

    def flush(self) -> Pcm:
        """The rest; then as many samples came out as went in. The stream has ended."""
        ...


class Watermark(Engine, ABC):
    """Marks speech, and finds the mark. All state lives in the streams."""

    @abstractmethod
    def stream(self, sample_rate: int) -> Marking:
        """For one stream at that rate in Hz."""

    @abstractmethod
    def likelihoods(self, pcm: Pcm, sample_rate: int) -> list[tuple[float, float, float]]:
        """Of each stretch of some seconds that is not silent: (start s, end s, 0 to 1). Blocking.

        `pcm` is float32 [n].
        """
