"""Makes speech clear and evenly loud: a high-pass, a loudness target and a true-peak limit."""

from functools import lru_cache

import numpy as np
import soxr
from pyloudnorm import Meter
from scipy.ndimage import maximum_filter1d, minimum_filter1d, uniform_filter1d
from scipy.signal import butter, sosfilt

from models.audio import Pcm

TARGET_LUFS = -16.0
PEAK_DB = -1.0  # dBTP
HIGH_PASS_HZ = 60
MOST_GAIN_DB = 36.0  # more would only lift the noise of a nearly silent signal
SHORTEST_S = 0.4  # one block of the loudness measure (ITU-R BS.1770)

OVERSAMPLING = 4  # BS.1770's figure for true peaks
LOOK_S = 0.004  # how soon before and after a peak the limiter acts
CEILING_MARGIN_DB = 0.1  # the limiter's own ripple between samples
_CLOSE_LU = 0.2


def enhance(pcm: Pcm, sample_rate: int) -> Pcm:
    """`pcm` float32 [n] at -16 LUFS and at most -1 dBTP; silence stays as it is.

    Blocking: 10 to 30 ms for 6 s of speech.
    """
    if not len(pcm):
        return pcm
    filtered = high_pass(pcm, sample_rate)
    loudness = measure_lufs(filtered, sample_rate)
    if not np.isfinite(loudness):
        return pcm
    gain_db = min(TARGET_LUFS - loudness, MOST_GAIN_DB)
    peaks = _peaks(filtered, sample_rate)
    shaped = limit(filtered, sample_rate, gain_db=gain_db, peaks=peaks)
    if gain_db < MOST_GAIN_DB:
        # Limiting takes loudness away; one more step gives back what the peaks allow.
        missing = TARGET_LUFS - measure_lufs(shaped, sample_rate)
        if missing > _CLOSE_LU:
            shaped = limit(filtered, sample_rate, gain_db=gain_db + 1.5 * missing, peaks=peaks)
    return shaped


class HighPass:
    """Takes out rumble and any constant offset below the voice, of a stream."""

    def __init__(self, sample_rate: int) -> None:
        self._filter = _high_pass(sample_rate)
        self._state = np.zeros((len(self._filter), 2))

    def process(self, pcm: Pcm) -> Pcm:
        """As many samples as come in, float32 [n]."""
        if not len(pcm):
            return pcm
        filtered, self._state = sosfilt(self._filter, pcm, zi=self._state)
        return np.asarray(filtered, dtype=np.float32)


def high_pass(pcm: Pcm, sample_rate: int) -> Pcm:
    """The whole of a signal through one `HighPass`."""
    return HighPass(sample_rate).process(pcm)


def measure_lufs(pcm: Pcm, sample_rate: int) -> float:
    """Integrated loudness; -inf for silence. A signal shorter than 0.4 s is repeated."""
    shortest = int(np.ceil(SHORTEST_S * sample_rate)) + 1
    if not len(pcm) or not np.any(pcm):
        return -np.inf
    if len(pcm) < shortest:
        pcm = np.tile(pcm, -(-shortest // len(pcm)))
    with np.errstate(divide="ignore"):
        return float(_meter(sample_rate).integrated_loudness(pcm.astype(np.float64)))


def true_peak(pcm: Pcm, sample_rate: int) -> float:
    """The highest level between samples, linear."""
    return float(np.max(_peaks(pcm, sample_rate), initial=0.0))


def limit(pcm: Pcm, sample_rate: int, *, gain_db: float = 0.0, peaks: Pcm | None = None) -> Pcm:
    """Amplifies, and turns the level down around each true peak over -1 dBTP.

    `peaks`, float32 [n], are those of `pcm` itself when they are known already.
    """
    if not len(pcm):
        return pcm
    if peaks is None:
        peaks = _peaks(pcm, sample_rate)
    factor = np.float32(10 ** (gain_db / 20))
    amplified, peaks = pcm * factor, peaks * factor
    ceiling = 10 ** ((PEAK_DB - CEILING_MARGIN_DB) / 20)
    if np.max(peaks) <= ceiling:
        return np.asarray(amplified, dtype=np.float32)
    gain = np.minimum(1.0, ceiling / np.maximum(peaks, 1e-9))
    window = 2 * int(LOOK_S * sample_rate) + 1
    held = minimum_filter1d(gain, 2 * window - 1, mode="nearest")
    smooth = uniform_filter1d(held, window, mode="nearest")
    return np.asarray(amplified * np.minimum(smooth, gain), dtype=np.float32)


def _peaks(pcm: Pcm, sample_rate: int) -> Pcm:
    """float32 [n]: the highest level around each sample."""
    dense = np.abs(soxr.resample(pcm, sample_rate, sample_rate * OVERSAMPLING, quality="MQ"))
    wanted = len(pcm) * OVERSAMPLING
    dense = np.pad(dense[:wanted], (0, max(0, wanted - len(dense))))
    around = maximum_filter1d(dense, 2 * OVERSAMPLING + 1, mode="nearest")[::OVERSAMPLING]
    return np.asarray(np.maximum(around, np.abs(pcm)), dtype=np.float32)


@lru_cache(maxsize=16)
def _meter(sample_rate: int) -> Meter:
    return Meter(sample_rate)


@lru_cache(maxsize=16)
def _high_pass(sample_rate: int) -> np.ndarray:
    return np.asarray(butter(2, HIGH_PASS_HZ, "highpass", fs=sample_rate, output="sos"))
