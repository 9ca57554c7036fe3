"""Speaker embeddings: a voice as a vector, close to other vectors of the same voice."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.base import Engine

SPEAKER_SAMPLE_RATE = 16_000  # Hz; the input of every encoder
EMBEDDING_SIZE = 256
RATE = 1.3  # windows per second for the embedding of a signal
MIN_COVERAGE = 0.75  # part of the last window that must be filled

# Unit vectors, float32 [256] and [k, 256]; the dot product of two is their similarity, at most 1.
Embedding: TypeAlias = NDArray[np.float32]
Embeddings: TypeAlias = NDArray[np.float32]


class SpeakerEncoder(Engine, ABC):
    """Encoder of voices as speaker embeddings. Stateless; its calls block."""

    def embed(self, pcm: Pcm) -> Embedding:
        """Embeds a signal, float32 [n] at 16 kHz with n > 0, as the mean of its windows."""
        return mean_embedding(self.embed_windows(pcm, 1 / RATE))

    def embed_signals(self, signals: Iterable[Pcm]) -> Embedding:
        """Embeds one or more signals as the mean of their embeddings."""
        return mean_embedding(np.stack([self.embed(pcm) for pcm in signals]))

    @abstractmethod
    def embed_windows(self, pcm: Pcm, hop_s: float) -> Embeddings:
        """Embeds windows of the encoder's length, `hop_s` apart, as `window_starts` places them."""

    @abstractmethod
    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        """Embeds windows of any length, given as (start, end) in samples."""


def window_starts(samples: int, window: int, hop: int) -> list[int]:
    """First sample of each window; a last one under MIN_COVERAGE counts only when alone."""
    starts = list(range(0, max(1, samples + 1 - window + hop), hop))
    if len(starts) > 1 and samples - starts[-1] < MIN_COVERAGE * window:
        starts.pop()
    return starts


def mean_embedding(embeddings: Embeddings) -> Embedding:
    """Averages embeddings [k, 256] and normalises the result."""
    mean = embeddings.mean(axis=0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-9), np.float32)
