"""Where windows lie on a signal, and the mean of what they say."""

import numpy as np

from models.speaker.base import Embedding, Embeddings

MIN_COVERAGE = 0.75  # of the last window


def window_starts(samples: int, window: int, hop: int) -> list[int]:
    """The first sample of each window; a last one that is hardly covered counts only when alone."""
    starts = list(range(0, max(1, samples + 1 - window + hop), hop))
    if len(starts) > 1 and samples - starts[-1] < MIN_COVERAGE * window:
        starts.pop()
    return starts


def mean_embedding(embeddings: Embeddings) -> Embedding:
    """The mean of [k, 256], again of length 1."""
    mean = embeddings.mean(axis=0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-9), np.float32)
