"""Features of a signal: its speech, level, spectrum and pitch, measured alike for all voices."""

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.speaker.base import SPEAKER_SAMPLE_RATE
from models.speaker.mel import Mels

LEVEL_DBFS = -30.0  # embeddings change with loudness, which says nothing of the speaker
FRAME_SAMPLES = SPEAKER_SAMPLE_RATE // 50
LOUD_PERCENTILE, SOFT_PERCENTILE = 95, 10
SPEECH_RANGE_DB = 30.0  # below its loud parts
SILENT = 1e-10  # power


def at_level(pcm: Pcm) -> Pcm:
    """The signal with the root mean square of its speech at LEVEL_DBFS; silence is unchanged."""
    power = float(np.square(pcm[spoken(pcm)]).mean(dtype=np.float64)) if len(pcm) else 0.0
    if power <= SILENT:
        return pcm
    return np.asarray(pcm * (10 ** (LEVEL_DBFS / 20) / power**0.5), np.float32)


def spoken(pcm: Pcm) -> NDArray[np.bool_]:
    """Whether each sample at SPEAKER_SAMPLE_RATE is within speech, by level alone."""
    frames = len(pcm) // FRAME_SAMPLES
    if not frames:
        return np.ones(len(pcm), np.bool_)
    powers = np.square(pcm[: frames * FRAME_SAMPLES].reshape(frames, -1)).mean(axis=1)
    loud = np.repeat(_loud(powers), FRAME_SAMPLES)
    return np.pad(loud, (0, len(pcm) - len(loud)), "edge")


def speech_frames(mels: Mels) -> Mels:
    """The frames of speech, by level alone."""
    return mels[_loud(mels.sum(axis=1))]


def mean_spectrum(mels: Mels) -> NDArray[np.float32]:
    """The mean power in each band, its sum 1."""
    spectrum = mels.mean(axis=0, dtype=np.float64)
    return np.asarray(spectrum / max(float(spectrum.sum()), SILENT), np.float32)


def pitch_statistics(pitches: NDArray[np.float32]) -> tuple[float, float]:
    """Level and range: median of the logarithm, half the span from the 15th to the 85th percentile.

    Both are NaN where no frame had a pitch.
    """
    if not len(pitches):
        return np.nan, np.nan
    low, median, high = np.log(np.percentile(pitches, (15, 50, 85)))
    return float(median), float(high - low) / 2


def _loud(powers: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Nearer to the loud parts than to the noise between them."""
    levels = 10 * np.log10(powers + SILENT)
    loud, soft = np.percentile(levels, (LOUD_PERCENTILE, SOFT_PERCENTILE))
    return np.asarray(levels >= max(loud - SPEECH_RANGE_DB, min((loud + soft) / 2, loud - 10)))
