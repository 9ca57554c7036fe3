"""Restores the peaks of clipped speech.

Each frame is modelled as autoregressive (linear prediction). Its clipped samples get the values
with the least prediction error, given the others (Janssen, Veldhuis & Vries, "Adaptive
interpolation of discrete-time signals that can be modeled as autoregressive processes", 1986)."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_toeplitz, solveh_banded

from models.audio import Pcm

ORDER = 24  # order of the prediction, at 16 kHz
FRAME = 512  # samples, half of which overlap the next frame
HOP = FRAME // 2
ITERATIONS = 3  # the predictor and the samples are estimated in turn
AT_PEAK = 0.98  # share of the peak; samples above it count as clipped
# Share of the peak. A pure tone has 2.4 times as many samples above AT_PEAK as between the two.
BELOW_PEAK = 0.96
MANY = 4.0  # ratio of samples above AT_PEAK to those just below, in a clipped signal
LEAST_SHARE = 0.001  # least share of clipped samples in clipped speech
LONGEST_RUN = 300  # samples; a longer run is not a peak of speech
MOST_CLIPPED = 0.6  # share of a frame; with more, too little is left to go by
HIGHEST = 8.0  # highest restored level, in multiples of the clipping level
GAIN = 0.25  # leaves room for most peaks; the rest may exceed full scale
BLOCK = 2**16  # samples, after which other work may have its turn
WINDOW = np.hanning(FRAME + 2)[1:-1]


def is_clipped(pcm: Pcm) -> bool:
    """Whether so many samples of a signal, [n], lie at its peak that it is clipped."""
    peak = max(float(pcm.max(initial=0.0)), -float(pcm.min(initial=0.0)))
    clipped = below = 0
    for start in range(0, len(pcm), BLOCK):  # files are mapped, and a copy may be large
        level = np.abs(pcm[start : start + BLOCK])
        clipped += int(np.count_nonzero(level >= AT_PEAK * peak))
        below += int(np.count_nonzero((level >= BELOW_PEAK * peak) & (level < AT_PEAK * peak)))
    return peak > 0 and clipped > LEAST_SHARE * len(pcm) and clipped > MANY * below


def declipped(pcm: Pcm) -> Iterator[Pcm]:
    """Yields blocks of clipped speech, float32 [n] at 16 kHz, with restored peaks at a quarter of
    its level. Takes 10 to 16 ms of a core for a second that is clipped by 12 to 20 dB."""
    threshold = AT_PEAK * float(np.abs(pcm).max())
    for start in range(0, len(pcm), BLOCK):
        margin = min(start, FRAME)
        piece = np.asarray(pcm[start - margin : start + BLOCK + FRAME], np.float64)
        restored = _restored(piece, threshold)[margin : margin + BLOCK]
        yield np.asarray(restored * GAIN, np.float32)


def _restored(piece: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    signal = np.pad(piece, (HOP, FRAME))
    bowed = _bowed(signal, threshold)
    restored = np.zeros_like(signal)
    weights = np.zeros_like(signal)
    for start in range(0, len(signal) - FRAME + 1, HOP):
        frame = slice(start, start + FRAME)
        restored[frame] += WINDOW * _predicted(signal[frame], bowed[frame], threshold)
        weights[frame] += WINDOW
    inside = slice(HOP, HOP + len(piece))
    return np.asarray(restored[inside] / weights[inside])


def _bowed(signal: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Bows each run of clipped samples outwards: a cubic with the slopes of its neighbours. A
    predictor of the clipped signal itself predicts clipped samples: word errors at 20 dB were 14 %
    with it, and 10 % with the bowed one."""
    bowed = signal.copy()
    for sign in (1.0, -1.0):
        is_lost = np.concatenate([[False], sign * signal >= threshold, [False]])
        edges = np.flatnonzero(np.diff(is_lost))
        starts, ends = edges[::2], edges[1::2]
        lengths = ends - starts
        is_bowed = (lengths >= 2) & (lengths <= LONGEST_RUN)
        is_bowed &= (starts >= 2) & (ends <= len(signal) - 2)
        for length in np.unique(lengths[is_bowed]).tolist():
            start = starts[is_bowed & (lengths == length)][:, None]
            before, first = signal[start - 2], signal[start - 1]
            last, behind = signal[start + length], signal[start + length + 1]
            at = np.arange(1, length + 1) / (length + 1)
            cubic = (
                first * (2 * at**3 - 3 * at**2 + 1)
                + (first - before) * (length + 1) * (at**3 - 2 * at**2 + at)
                + last * (3 * at**2 - 2 * at**3)
                + (behind - last) * (length + 1) * (at**3 - at**2)
            )
            curve = sign * np.clip(sign * cubic, threshold, HIGHEST * threshold)
            bowed[start + np.arange(length)] = curve
    return bowed


def _predicted(
    frame: NDArray[np.float64], bowed: NDArray[np.float64], threshold: float
) -> NDArray[np.float64]:
    """Replaces the clipped samples of a frame by what the bowed frame's predictor expects."""
    is_lost = np.abs(frame) >= threshold
    is_lost[:ORDER] = is_lost[-ORDER:] = False  # another frame has them in its middle
    lost = np.flatnonzero(is_lost)
    if not 0 < len(lost) <= MOST_CLIPPED * FRAME:
        return bowed
    # The equations form a band matrix: lost samples more than ORDER apart share no equation.
    after = np.minimum(np.arange(ORDER + 1)[:, None] + np.arange(len(lost)), len(lost) - 1)
    distances = lost[after] - lost
    kept = np.where(is_lost, 0.0, bowed)
    sign = np.sign(frame[lost])
    result = bowed.copy()
    for _ in range(ITERATIONS):
        correlation = np.correlate(result, result, "full")[FRAME - 1 : FRAME + ORDER]
        correlation[0] *= 1.0001  # white noise of -40 dB, for a stable solution
        predictor = solve_toeplitz(correlation[:ORDER], correlation[1:])
        error_filter = np.concatenate([[1.0], -predictor])
        gram = np.correlate(error_filter, error_filter, "full")[ORDER:]
        band = np.where(distances <= ORDER, gram[np.minimum(distances, ORDER)], 0.0)
        band[0] = gram[0] * (1 + 1e-6)
        target = -np.convolve(kept, np.concatenate([gram[:0:-1], gram]), "same")[lost]
        values = solveh_banded(band, target, lower=True)
        result[lost] = sign * np.clip(sign * values, threshold, HIGHEST * threshold)
    return result
