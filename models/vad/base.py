"""Voice activity detection (VAD): the probability that a short frame is speech."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.base import Engine

VAD_SAMPLE_RATE = 16_000  # Hz; the input of every engine
BATCH_FRAMES = 512  # about 16 s; bounds the memory of a long file

Probabilities: TypeAlias = NDArray[np.float32]  # speech probabilities, float32 [frames] in [0, 1]


class VADStream(Protocol):
    """State of one live signal. Not thread-safe."""

    def accept_many(self, frames: NDArray[np.float32]) -> Probabilities:
        """Returns probabilities [n] of consecutive frames, float32 [n, frame_samples], n > 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VADCapabilities:
    """The capabilities of a voice activity detector."""

    frame_samples: int  # length of a frame at VAD_SAMPLE_RATE


class VADEngine(Engine, ABC):
    """Detector of speech; the state of a signal is in its stream."""

    capabilities: VADCapabilities

    @abstractmethod
    def start_stream(self) -> VADStream:
        """Creates the state of one live signal."""

    def batches(self, pcm: Pcm) -> Iterator[Probabilities]:
        """Yields the probabilities of a whole signal, BATCH_FRAMES at a time; an hour takes 10 s,
        and the caller may stop between batches. An incomplete last frame is padded with silence."""
        size = self.capabilities.frame_samples
        stream = self.start_stream()
        for at in range(0, len(pcm), BATCH_FRAMES * size):
            block = pcm[at : at + BATCH_FRAMES * size]
            yield stream.accept_many(np.pad(block, (0, -len(block) % size)).reshape(-1, size))

    def probabilities(self, pcm: Pcm) -> Probabilities:
        """Returns the probabilities of a whole signal."""
        return np.concatenate([np.zeros(0, np.float32), *self.batches(pcm)])
