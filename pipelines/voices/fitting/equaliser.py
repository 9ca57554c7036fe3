"""The filter of a voice: a gain for each of BANDS bands of the mel scale, as a linear-phase FIR.
The taps come from frequency sampling with a window (`scipy.signal.firwin2`)."""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import firwin2

from models.speaker.mel import MEL_BANDS, mel_centres_hz
from pipelines.voices.fitting.search.style_space import Vectors

BANDS = 14
MOST_DB = 20.0
SMOOTHING = 0.3  # weight of a step between two bands, relative to an error of the spectrum
TAPS = 511
KEPT_BANDS = slice(2, 10)  # bands whose mean is 0 dB, so that the loudness is unchanged
SILENT = 1e-9

_SPREAD = np.stack(
    [
        np.interp(np.arange(MEL_BANDS), np.linspace(0, MEL_BANDS - 1, BANDS), band)
        for band in np.eye(BANDS)
    ]
)  # [bands, mel bands]


def gains(bands: Vectors) -> NDArray[np.float32]:
    """Return gains of the power in each mel band [..., 40], from decibels [..., BANDS]."""
    return np.asarray(10 ** (np.asarray(bands) @ _SPREAD / 10), np.float32)


def levelled(bands: Vectors) -> Vectors:
    """Return the bands clipped to MOST_DB, with a mean of 0 dB."""
    return np.asarray(np.clip(bands - bands[KEPT_BANDS].mean(), -MOST_DB, MOST_DB))


def bands_between(source: Vectors, target: Vectors) -> Vectors:
    """Return the smooth filter from the mean spectrum `source` [40] to `target` [40]."""
    wanted = 10 * np.log10((target + SILENT) / (source + SILENT))
    rows = np.concatenate([_SPREAD.T, SMOOTHING * np.diff(np.eye(BANDS), axis=0)])
    goal = np.concatenate([wanted, np.zeros(BANDS - 1)])
    return levelled(np.linalg.lstsq(rows, goal, rcond=None)[0])


def taps(bands: Vectors, sample_rate: int) -> NDArray[np.float32]:
    """Return a centred FIR filter for an engine of that rate; constant above the last mel band."""
    centres = mel_centres_hz()
    decibels = bands @ _SPREAD
    half = sample_rate / 2
    inside = centres < half
    frequencies = np.concatenate([[0.0], centres[inside], [half]])
    levels = np.concatenate([decibels[inside][:1], decibels[inside], decibels[inside][-1:]])
    designed = firwin2(TAPS, frequencies, 10 ** (levels / 20), nfreqs=4097, fs=sample_rate)
    return np.asarray(designed, np.float32)
