"""Loudness of a stream: measured as it passes, and brought to a target without looking ahead."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyloudnorm import Meter
from scipy.ndimage import maximum_filter1d, minimum_filter1d, uniform_filter1d
from scipy.signal import firwin, resample_poly, sosfilt, tf2sos

from models.audio import Pcm
from pipelines.audio.loudness import CEILING_MARGIN_DB, LOOK_S, MOST_GAIN_DB, OVERSAMPLING, PEAK_DB

_STEP_S = 0.1  # the hop of BS.1770's blocks, and how often the gain moves
_BLOCK_STEPS = 4
_GATE_LUFS = -70.0
_RELATIVE_GATE_LU = -10.0
_BIN_LU = 0.1
_BINS = 800  # from the gate to +10 LUFS

_USUAL_LUFS = -23.0  # of a voice that was never heard: about what engines give
_USUAL_WEIGHT_S = 0.3
_REMEMBERED_WEIGHT_S = 8.0
_QUICK_DB_PER_S = 6.0  # while a voice is new
_SLOW_DB_PER_S = 1.0  # too slow to be heard
_QUICK_S = 3.0
_CORRECTION = 2.0
_MOST_CORRECTION_DB = 2.0

_RESAMPLER_REACH = 16  # samples; beyond it a neighbour does not change a value between samples
# As resample_poly would design anew for each chunk.
_RESAMPLER: Any = firwin(20 * OVERSAMPLING + 1, 1 / OVERSAMPLING, window=("kaiser", 5.0))


class LoudnessMeter:
    """Integrated loudness (ITU-R BS.1770) of what has passed; its memory does not grow."""

    def __init__(self, sample_rate: int) -> None:
        self._step = round(_STEP_S * sample_rate)
        self._filter = _k_weighting(sample_rate)
        self._state = np.zeros((len(self._filter), 2))
        self._rest: NDArray[np.float64] = np.zeros(0)
        self._steps: list[float] = []  # mean squares of the last steps
        self._counts = np.zeros(_BINS)
        self._energies = np.zeros(_BINS)

    def push(self, pcm: Pcm) -> None:
        """Takes in float32 [n]."""
        if not len(pcm):
            return
        weighted, self._state = sosfilt(self._filter, pcm.astype(np.float64), zi=self._state)
        squares = np.concatenate([self._rest, np.square(weighted)])
        whole = len(squares) // self._step
        for mean in squares[: whole * self._step].reshape(whole, self._step).mean(axis=1):
            self._add_step(float(mean))
        self._rest = squares[whole * self._step :]

    def _add_step(self, mean: float) -> None:
        self._steps = [*self._steps[1 - _BLOCK_STEPS :], mean]
        if len(self._steps) < _BLOCK_STEPS:
            return
        energy = sum(self._steps) / _BLOCK_STEPS
        place = int((_lufs(energy) - _GATE_LUFS) / _BIN_LU) if energy > 0 else -1
        if place >= 0:
            place = min(place, _BINS - 1)
            self._counts[place] += 1
            self._energies[place] += energy

    @property
    def lufs(self) -> float:
        """-inf until 0.4 s of anything louder than -70 LUFS has passed."""
        first = self._first_gated()
        counted = self._counts[first:].sum()
        return _lufs(self._energies[first:].sum() / counted) if counted else -np.inf

    @property
    def sounding_s(self) -> float:
        """How many seconds `lufs` was measured over."""
        return float(self._counts[self._first_gated() :].sum()) * _STEP_S

    def _first_gated(self) -> int:
        counted = self._counts.sum()
        if not counted:
            return 0
        gate = _lufs(self._energies.sum() / counted) + _RELATIVE_GATE_LU
        return max(0, int((gate - _GATE_LUFS) / _BIN_LU))


class PeakLimiter:
    """Turns the level down around true peaks over -1 dBTP; holds back the last 9 ms."""

    def __init__(self, sample_rate: int) -> None:
        self._look = round(LOOK_S * sample_rate)
        self._reach = 2 * self._look + _RESAMPLER_REACH
        # What was given out but still shapes the gain, then what waits.
        self._pcm: Pcm = np.zeros(self._reach, dtype=np.float32)

    def process(self, pcm: Pcm) -> Pcm:
        """The samples whose neighbours are all known."""
        self._pcm = np.concatenate([self._pcm, pcm])
        ready = len(self._pcm) - 2 * self._reach
        if ready <= 0:
            return self._pcm[:0]
        limited = self._limited()[self._reach : self._reach + ready]
        self._pcm = self._pcm[ready:]
        return limited

    def flush(self) -> Pcm:
        """The rest; the limiter may go on after it."""
        rest = self.process(np.zeros(self._reach, dtype=np.float32))
        self._pcm = np.zeros(self._reach, dtype=np.float32)
        return rest

    def _limited(self) -> Pcm:
        ceiling = np.float32(10 ** ((PEAK_DB - CEILING_MARGIN_DB) / 20))
        level = np.abs(self._pcm)
        if np.max(level) < ceiling / 2:  # speech never hides 6 dB between samples
            return self._pcm
        dense = np.abs(resample_poly(self._pcm, OVERSAMPLING, 1, window=_RESAMPLER))
        around = maximum_filter1d(dense, 2 * OVERSAMPLING + 1, mode="nearest")[::OVERSAMPLING]
        gain = np.minimum(1.0, ceiling / np.maximum(np.maximum(around, level), 1e-9))
        window = 2 * self._look + 1
        smooth = uniform_filter1d(minimum_filter1d(gain, window), window)
        return np.asarray(self._pcm * np.minimum(smooth, gain), dtype=np.float32)


class LoudnessNormaliser:
    """Brings a stream to a loudness integrated over all of it, at most -1 dBTP.

    It starts from the level that the voice is remembered at, and moves so slowly that nobody
    hears it; a voice that was never heard is found within its first seconds.
    """

    def __init__(self, target_lufs: float, remembered_lufs: float | None = None) -> None:
        self._target_lufs = target_lufs
        self._expected_lufs = _USUAL_LUFS if remembered_lufs is None else remembered_lufs
        self._weight_s = _USUAL_WEIGHT_S if remembered_lufs is None else _REMEMBERED_WEIGHT_S
        self._is_new = remembered_lufs is None
        self._sample_rate = 0
        self._gain_db: float | None = None

    def process(self, pcm: Pcm, sample_rate: int) -> Pcm:
        """float32 [n] in, about as many out: the last 9 ms wait for what comes after them.

        `sample_rate` stays the same for the whole stream. Blocking: about 1 ms for 0.5 s.
        """
        if not self._sample_rate:
            self._sample_rate = sample_rate
            self._before, self._after = LoudnessMeter(sample_rate), LoudnessMeter(sample_rate)
            self._limiter = PeakLimiter(sample_rate)
        if not len(pcm):
            return pcm
        self._before.push(pcm)
        return self._count(self._limiter.process(self._amplify(pcm)))

    def flush(self) -> Pcm:
        """What was held back; the stream may go on after it."""
        if not self._sample_rate:
            return np.zeros(0, dtype=np.float32)
        return self._count(self._limiter.flush())

    @property
    def measured_lufs(self) -> float | None:
        """Loudness of what came in, to be remembered; None before 0.4 s of sound."""
        measured = self._before.lufs if self._sample_rate else -np.inf
        return measured if np.isfinite(measured) else None

    @property
    def measured_s(self) -> float:
        """How many seconds of sound `measured_lufs` was measured over."""
        return self._before.sounding_s if self._sample_rate else 0.0

    def _count(self, pcm: Pcm) -> Pcm:
        self._after.push(pcm)
        return pcm

    def _amplify(self, pcm: Pcm) -> Pcm:
        wanted_db = self._wanted_db(pcm)
        if self._gain_db is None:
            if not np.any(pcm):
                return pcm  # nothing is known yet
            self._gain_db = wanted_db
        quick = self._is_new and self._before.sounding_s < _QUICK_S
        most_db = (_QUICK_DB_PER_S if quick else _SLOW_DB_PER_S) * len(pcm) / self._sample_rate
        before_db = self._gain_db
        self._gain_db += float(np.clip(wanted_db - before_db, -most_db, most_db))
        if self._gain_db == before_db:
            return np.asarray(pcm * np.float32(10 ** (before_db / 20)), dtype=np.float32)
        ramp_db = np.linspace(before_db, self._gain_db, len(pcm), dtype=np.float32)
        return np.asarray(pcm * 10 ** (ramp_db / 20), dtype=np.float32)

    def _wanted_db(self, pcm: Pcm) -> float:
        """The gain that would bring the whole of the stream to the target."""
        heard_s, level = self._before.sounding_s, self._before.lufs
        if not np.isfinite(level):  # under 0.4 s: its power, without weights and gates
            level = _lufs(float(np.mean(np.square(pcm))) or 1e-9)
            heard_s = len(pcm) / self._sample_rate if level > _GATE_LUFS else 0.0
        weighed = self._weight_s + heard_s
        expected = (self._weight_s * self._expected_lufs + heard_s * level) / weighed
        wanted_db = self._target_lufs - expected
        given = self._after.lufs
        if np.isfinite(given):
            # What the limiter took away, and what the first guess was wrong by.
            trust = min(1.0, self._after.sounding_s / _QUICK_S)
            missing = _CORRECTION * trust * (self._target_lufs - given)
            wanted_db += float(np.clip(missing, -_MOST_CORRECTION_DB, _MOST_CORRECTION_DB))
        return min(wanted_db, MOST_GAIN_DB)


def _lufs(energy: float) -> float:
    return float(-0.691 + 10 * np.log10(energy))


@lru_cache(maxsize=16)
def _k_weighting(sample_rate: int) -> NDArray[np.float64]:
    filters = Meter(sample_rate)._filters.values()
    return np.concatenate([tf2sos(one.passband_gain * one.b, one.a) for one in filters])
