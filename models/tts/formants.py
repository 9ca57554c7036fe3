"""Formant shifting: scales the formants of speech and keeps its pitch.

The envelope of each short-time spectrum comes from its cepstrum below the pitch period of the
highest voice. It is stretched along the frequency axis and applied with the original phases
(cepstral smoothing: Oppenheim and Schafer, "Discrete-Time Signal Processing", chapter 13).
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, rfft

from models.audio import Pcm

FRAME_S = 0.032
OVERLAP = 4  # frames per sample
DETAIL_S = 0.001625  # of the cepstrum, below the period of a voice of 600 Hz
MOST_GAIN = 3.0  # nepers up or down: envelopes of near-silence are unreliable
SILENT = 4e-4  # inaudible, relative to a full scale of some hundred
BLOCK_FRAMES = 1024  # 8 s; bounds the memory for a long signal


def with_formants(pcm: Pcm, factor: float, sample_rate: int) -> Pcm:
    """A signal float32 [n] with its formants scaled by `factor`, float32 [n].

    Takes 1 to 2 ms per second of audio. The length does not change; a factor of 1 changes nothing.
    """
    if factor == 1.0 or not len(pcm):
        return pcm
    hop = round(FRAME_S * sample_rate / OVERLAP)
    size = hop * OVERLAP
    window = _window(size)
    count = -(-len(pcm) // hop) + OVERLAP - 1
    padded = np.zeros((count + OVERLAP - 1) * hop, np.float32)
    padded[size - hop : size - hop + len(pcm)] = pcm
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    made = np.zeros((count + OVERLAP - 1, hop), np.float32)
    for start in range(0, count, BLOCK_FRAMES):
        block = _moved(frames[start : start + BLOCK_FRAMES] * window, factor, sample_rate) * window
        for part in range(OVERLAP):
            made[start + part : start + part + len(block)] += block[:, part * hop :][:, :hop]
    # Squared Hann windows at a hop of a quarter sum to 3/2.
    return np.asarray(made.reshape(-1)[size - hop :][: len(pcm)] / 1.5, np.float32)


def _moved(frames: NDArray[np.float32], factor: float, sample_rate: int) -> NDArray[np.float32]:
    """Shifts the formants of windowed frames [m, size]."""
    size = frames.shape[1]
    spectra = rfft(frames)
    cepstra = irfft(np.log(np.abs(spectra) + np.float32(SILENT)), size)
    kept = round(DETAIL_S * sample_rate)
    cepstra[:, kept : size - kept + 1] = 0
    envelopes = rfft(cepstra).real
    bins = np.arange(envelopes.shape[1])
    sources = np.minimum(bins / factor, bins[-1])
    below = sources.astype(np.intp)
    above = np.minimum(below + 1, bins[-1])
    shares = (sources - below).astype(np.float32)
    gains = envelopes[:, below] * (1 - shares) + envelopes[:, above] * shares - envelopes
    moved = irfft(spectra * np.exp(np.clip(gains, -MOST_GAIN, MOST_GAIN)), size)
    return np.asarray(moved, np.float32)


@cache
def _window(size: int) -> NDArray[np.float32]:
    """Hann's, periodic."""
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size), np.float32)
