"""The average spectrum of a signal: an encoder without weights, for tests.

It distinguishes a low buzz from a high one, which is enough for most tests of voices.
"""

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
            levels = np.log(mel_spectrum(pcm[start:end]).mean(axis=0) + 1e-9)
            levels = levels - levels.mean()
            length = max(float(np.linalg.norm(levels)), 1e-9)
            embeddings[row, :MEL_BANDS] = levels / length
        return embeddings
