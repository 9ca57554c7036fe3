"""Audio watermarking: an inaudible mark in synthetic speech, and its detection."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from models.audio import Pcm
from models.base import Engine


class Marking(Protocol):
    """Embeds the watermark in one stream of consecutive pcm. Blocking, not thread-safe."""

    def process(self, pcm: Pcm) -> Pcm:
        """The marked audio that is ready after `pcm`, float32 [n]; the rest needs more input."""
        ...

    def flush(self) -> Pcm:
        """The rest at the end of the stream; as many samples have come out as went in."""
        ...


class Watermark(Engine, ABC):
    """Embeds and detects the watermark. All state is in the streams."""

    @abstractmethod
    def stream(self, sample_rate: int) -> Marking:
        """Creates a stream at that rate in Hz."""

    @abstractmethod
    def likelihoods(self, pcm: Pcm, sample_rate: int) -> Iterator[tuple[float, float, float]]:
        """(start s, end s, likelihood 0 to 1) of each stretch of some seconds of audible `pcm`.

        `pcm` is float32 [n]. Blocking.
        """
