"""Voice activity detection: how likely each short frame is to be speech."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.base import Engine

VAD_SAMPLE_RATE = 16_000  # Hz; every engine listens at this rate

Probabilities: TypeAlias = NDArray[np.float32]
"""float32 [frames] in [0, 1]."""


class VADStream(Protocol):
    """The state of one live signal. Not shared between threads at the same time."""

    def accept(self, frame: Pcm) -> float:
        """The speech probability of the next frame, float32 [frame_samples]."""
        ...

    def accept_many(self, frames: NDArray[np.float32]) -> Probabilities:
        """The probabilities of consecutive frames, float32 [n, frame_samples] -> [n], n > 0."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VADCapabilities:
    """What a voice activity detector can do."""

    frame_samples: int  # of a frame at VAD_SAMPLE_RATE


class VADEngine(Engine, ABC):
    """Detects speech; the state of a signal lives in its stream."""

    capabilities: VADCapabilities

    @abstractmethod
    def start_stream(self) -> VADStream:
        """For one live signal."""

    @abstractmethod
    def probabilities(self, pcm: Pcm) -> Probabilities:
        """The probabilities of a whole signal; a last piece of a frame is filled with silence."""
