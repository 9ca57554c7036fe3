"""Loudness and true peak by other libraries than the source uses: pyloudnorm and soxr."""

import numpy as np
import soxr
from pyloudnorm import Meter

from models.audio import Pcm

SHORTEST_S = 0.4  # one block of the meter


def measure_lufs(pcm: Pcm, sample_rate: int) -> float:
    """Integrated loudness; -inf for silence. A signal shorter than 0.4 s is repeated."""
    shortest = int(np.ceil(SHORTEST_S * sample_rate)) + 1
    if not len(pcm) or not np.any(pcm):
        return -np.inf
    if len(pcm) < shortest:
        pcm = np.tile(pcm, -(-shortest // len(pcm)))
    with np.errstate(divide="ignore"):
        return float(Meter(sample_rate).integrated_loudness(pcm.astype(np.float64)))


def true_peak(pcm: Pcm, sample_rate: int) -> float:
    """The highest level of the signal oversampled four times, linear."""
    dense = soxr.resample(pcm, sample_rate, sample_rate * 4, quality="MQ")
    return float(max(np.max(np.abs(dense), initial=0.0), np.max(np.abs(pcm), initial=0.0)))
