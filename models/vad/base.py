"""Voice activity detection: how likely each short frame is to be speech."""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm

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


class VADEngine(Protocol):
    """One shared instance; the state of a signal lives in its stream."""

    frame_samples: int  # samples of a frame at VAD_SAMPLE_RATE

    def start_stream(self) -> VADStream: ...

    def probabilities(self, pcm: Pcm) -> Probabilities:
        """The probabilities of a whole signal; a last piece of a frame is filled with silence."""
        ...
