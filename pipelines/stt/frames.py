"""The recent audio of a live signal, in the frames of the voice activity detector."""

from collections import deque

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm


class FrameBuffer:
    """Cuts a stream into frames, and keeps those that an utterance may still need."""

    def __init__(self, frame_samples: int) -> None:
        self.size = frame_samples
        self._rest: Pcm = np.zeros(0, np.float32)  # not yet a frame
        self._kept: deque[Pcm] = deque()
        self._first = 0  # number of the first kept frame

    def push(self, pcm: Pcm) -> NDArray[np.float32]:
        """The frames that `pcm` completes, float32 [n, frame_samples]."""
        signal = np.concatenate([self._rest, pcm])
        whole = len(signal) // self.size * self.size
        self._rest = signal[whole:].copy()  # a view would hold the whole message
        frames = signal[:whole].reshape(-1, self.size)
        self._kept.extend(frame.copy() for frame in frames)
        return frames

    def padding(self) -> Pcm:
        """The silence that would complete the last frame; nothing when it is whole."""
        return np.zeros(-len(self._rest) % self.size, np.float32)

    def between(self, start: int, end: int) -> Pcm:
        """float32 [end - start]: kept samples by their positions in the stream."""
        first, last = start // self.size, -(-end // self.size)
        parts = [self._kept[number - self._first] for number in range(first, last)]
        offset = first * self.size
        return np.concatenate(parts)[start - offset : end - offset]

    def forget_before(self, position: int) -> None:
        """Drops frames that end at or before `position`."""
        while self._kept and (self._first + 1) * self.size <= position:
            self._kept.popleft()
            self._first += 1
