"""The average spectrum of a signal: an encoder without weights, for tests.

It distinguishes a low buzz from a high one, which is enough for most tests of voices.
"""

import hashlib
from collections.abc import Sequence

import numpy as np

from models.audio import Pcm
from models.speaker.base import (
    EMBEDDING_SIZE,
    SPEAKER_SAMPLE_RATE,
    Embeddings,
    SpeakerEncoder,
    window_starts,
)
from models.speaker.mel import MEL_BANDS, mel_spectrum

WINDOW_SAMPLES = 25_600


class BandsEngine(SpeakerEncoder):
    """Levels of the mel bands relative to their mean, in the first 40 of 256 dimensions."""

    def embed_windows(self, pcm: Pcm, hop_s: float) -> Embeddings:
        hop = max(1, round(hop_s * SPEAKER_SAMPLE_RATE))
        starts = window_starts(len(pcm), WINDOW_SAMPLES, hop)
        return self.embed_pieces(pcm, [(at, min(at + WINDOW_SAMPLES, len(pcm))) for at in starts])

    def embed_pieces(self, pcm: Pcm, windows: Sequence[tuple[int, int]]) -> Embeddings:
        embeddings = np.zeros((len(windows), EMBEDDING_SIZE), np.float32)
        for row, (start, end) in enumerate(windows):
            piece = pcm[start:end]
            key = hashlib.blake2b(piece.tobytes()).digest()
            if key not in _seen:
                _seen[key] = _embed(piece)
            embeddings[row, :MEL_BANDS] = _seen[key]
        return embeddings


# Tests check the same recordings again and again: a second of work for each voice.
_seen: dict[bytes, Pcm] = {}


def _embed(pcm: Pcm) -> Pcm:
    levels = np.log(mel_spectrum(pcm).mean(axis=0) + 1e-9)
    levels = levels - levels.mean()
    return np.asarray(levels / max(float(np.linalg.norm(levels)), 1e-9), np.float32)
