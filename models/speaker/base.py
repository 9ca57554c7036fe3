"""Speaker embeddings: a voice as a point, near to the points of the same voice."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.base import Engine

SPEAKER_SAMPLE_RATE = 16_000  # Hz; every encoder listens at this rate
EMBEDDING_SIZE = 256

Embedding: TypeAlias = NDArray[np.float32]
"""float32 [256] of length 1; the dot product of two is their similarity, at most 1."""

Embeddings: TypeAlias = NDArray[np.float32]
"""float32 [k, 256], each of length 1."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """Windows of one signal. Crosses processes."""

    pcm: Pcm  # float32 [n] at SPEAKER_SAMPLE_RATE
    windows: tuple[tuple[int, int], ...]  # samples from `start` up to `end` of each, not empty


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerCapabilities:
    """What a speaker encoder can do."""

    window_s: float  # of speech that one embedding is best made of


class SpeakerEncoder(Engine, ABC):
    """Makes speaker embeddings. Stateless; its calls block."""

    capabilities: SpeakerCapabilities

    @abstractmethod
    def embed(self, pcm: Pcm) -> Embedding:
        """The voice of a signal, float32 [n] at 16 kHz with n > 0: the mean of its windows."""

    @abstractmethod
    def embed_windows(self, pcm: Pcm, hop_s: float) -> Embeddings:
        """The voice in each window of `window_s`; the next begins `hop_s` later.

        A last window that is less than three quarters full is left out; there is at least one.
        """

    @abstractmethod
    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        """The voice in each of these windows of samples, of any length, in their order."""
