"""Interface of audio watermarks: an inaudible mark in synthetic speech, and its detection."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from models.audio import Pcm
from models.base import Engine


class Marking(Protocol):
    """Embedder of the watermark in one stream of consecutive pcm. Blocking, not thread-safe."""

    def process(self, pcm: Pcm) -> Pcm:
        """Returns the marked audio that is ready, float32 [n]; the rest needs more input."""
        ...

    def flush(self) -> Pcm:
        """Returns the rest at the end of the stream, so that output is as long as input."""
        ...


class Watermark(Engine, ABC):
    """Watermark that can be embedded and detected. All state is in the streams."""

    @abstractmethod
    def stream(self, sample_rate: int) -> Marking:
        """Creates a stream at that rate in Hz."""

    @abstractmethod
    def likelihoods(self, pcm: Pcm, sample_rate: int) -> Iterator[tuple[float, float, float]]:
        """Yields (start s, end s, likelihood 0 to 1) of stretches of some seconds of `pcm`, float32
        [n]; silent ones are left out. Blocking."""
