"""Effects on speech: high-pass, loudness, true-peak limit, tempo and pitch, trimmed silence.

Integrated loudness follows ITU-R BS.1770-4 (K-weighting, blocks of 400 ms every 100 ms, gates at
-70 LUFS and 10 LU below the mean), true peaks follow its annex 2 (4x oversampling), and
units EBU R 128. The limiter is a look-ahead limiter: the least gain within a window, smoothed.
Tempo and pitch are changed by Signalsmith Stretch, a phase vocoder:
https://github.com/Signalsmith-Audio/signalsmith-stretch."""

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyloudnorm import Meter
from python_stretch import Signalsmith
from scipy.ndimage import minimum_filter1d, uniform_filter1d
from scipy.signal import butter, firwin, resample_poly, sosfilt, tf2sos

from models.audio import Pcm

SENTENCE_PAUSE_S = 0.18
PARAGRAPH_PAUSE_S = 0.45

TARGET_LUFS = -16.0
PEAK_DB = -1.0  # dBTP
HIGH_PASS_HZ = 60
MAX_GAIN_DB = 36.0  # more would only lift the noise of a nearly silent signal
SHORTEST_S = 0.4  # one block of the meter

_OVERSAMPLING = 4  # BS.1770's figure for true peaks
_LOOK_AHEAD_S = 0.004  # how soon before and after a peak the limiter acts
_CEILING_MARGIN_DB = 0.1  # the limiter's own ripple between samples
_CLOSE_LU = 0.2

_STEP_S = 0.1  # the hop of BS.1770's blocks
_BLOCK_STEPS = 4
_GATE_LUFS = -70.0
_RELATIVE_GATE_LU = -10.0
_BIN_LU = 0.1
_BINS = 800  # bins of loudness, from the gate to +10 LUFS

_DEFAULT_LUFS = -23.0  # assumed for a voice that was never measured: typical of engines
_DEFAULT_WEIGHT_S = 0.3
_REMEMBERED_WEIGHT_S = 8.0
_FAST_DB_PER_S = 6.0  # rate while a voice is new
_SLOW_DB_PER_S = 1.0  # too slow to be heard
_FAST_S = 3.0
_CORRECTION = 2.0
_MAX_CORRECTION_DB = 2.0

_RESAMPLER_REACH = 16  # samples that affect a value between samples, on each side
# Filter of resample_poly, which would design it again for each chunk.
_RESAMPLER: Any = firwin(20 * _OVERSAMPLING + 1, 1 / _OVERSAMPLING, window=("kaiser", 5.0)).astype(
    np.float32
)

_SILENCE = 10 ** (-50 / 20)  # linear; below it an engine only pads
_KEPT_S = 0.03  # padding that is kept, for soft beginnings and ends
_FADE_S = 0.004
_SHORTEST_STRETCHED_S = 0.12  # the stretcher needs about one of its blocks


def enhance(blocks: Callable[[], Iterable[Pcm]], sample_rate: int) -> Iterator[Pcm]:
    """Levels speech of any length to -16 LUFS and at most -1 dBTP; silence is unchanged.

    `blocks` returns the speech after a high-pass, float32 [n] each, up to three times: to measure
    its loudness, to measure the limiter's effect, and to make the result. Yields an empty block for
    each that is only measured. Blocking: 3 ms for each second of speech."""
    loudness = yield from measure_lufs(blocks(), sample_rate)
    if not np.isfinite(loudness):
        yield from blocks()
        return
    gain_db = min(TARGET_LUFS - loudness, MAX_GAIN_DB)
    if gain_db < MAX_GAIN_DB:
        # Limiting reduces loudness; one more step restores as much as the peaks allow. Peaks
        # between samples change this loss by 0.01 LU, and are nine tenths of the limiter's work.
        limited = limit(blocks(), sample_rate, gain_db, oversampling=1)
        missing = TARGET_LUFS - (yield from measure_lufs(limited, sample_rate))
        if missing > _CLOSE_LU:
            gain_db += 1.5 * missing
    yield from limit(blocks(), sample_rate, gain_db)


def measure_lufs(blocks: Iterable[Pcm], sample_rate: int) -> Generator[Pcm, None, float]:
    """Measures integrated loudness; -inf for silence. Repeats a signal shorter than 0.4 s. Yields
    an empty block for each of `blocks`."""
    shortest = int(np.ceil(SHORTEST_S * sample_rate)) + 1
    meter = LoudnessMeter(sample_rate)
    pcm: Pcm = np.zeros(0, dtype=np.float32)  # until it is long enough
    for block in blocks:
        if len(pcm) < shortest:
            block = pcm = np.concatenate([pcm, block])
        if len(pcm) >= shortest:
            meter.push(block)
        yield block[:0]
    if 0 < len(pcm) < shortest:
        meter.push(np.tile(pcm, -(-shortest // len(pcm))))
    return meter.lufs


def limit(
    blocks: Iterable[Pcm], sample_rate: int, gain_db: float, oversampling: int = _OVERSAMPLING
) -> Iterator[Pcm]:
    """Amplifies a whole signal and limits it by a `TruePeakLimiter`."""
    limiter = TruePeakLimiter(sample_rate, oversampling)
    for block in blocks:
        yield limiter.process(_amplify(block, gain_db))
    yield limiter.flush()


class HighPass:
    """High-pass filter of a stream, which removes rumble and offset below the voice."""

    def __init__(self, sample_rate: int) -> None:
        self._filter = _high_pass(sample_rate)
        self._state = np.zeros((len(self._filter), 2))

    def process(self, pcm: Pcm) -> Pcm:
        """Filters float32 [n]; returns as many samples."""
        if not len(pcm):
            return pcm
        filtered, self._state = sosfilt(self._filter, pcm, zi=self._state)
        return np.asarray(filtered, dtype=np.float32)


class LoudnessMeter:
    """Meter of a stream's integrated loudness so far; a histogram of blocks bounds its memory."""

    def __init__(self, sample_rate: int) -> None:
        self._step = round(_STEP_S * sample_rate)
        self._filter = _k_weighting(sample_rate)
        self._state = np.zeros((len(self._filter), 2))
        self._rest: NDArray[np.float64] = np.zeros(0)
        self._steps: list[float] = []  # mean squares of the last steps
        self._counts = np.zeros(_BINS)
        self._energies = np.zeros(_BINS)

    def push(self, pcm: Pcm) -> None:
        """Adds float32 [n] to the measurement."""
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
        """Loudness so far; -inf until 0.4 s louder than -70 LUFS have passed."""
        first = self._first_gated()
        counted = self._counts[first:].sum()
        return _lufs(self._energies[first:].sum() / counted) if counted else -np.inf

    @property
    def measured_s(self) -> float:
        return float(self._counts[self._first_gated() :].sum()) * _STEP_S

    def _first_gated(self) -> int:
        counted = self._counts.sum()
        if not counted:
            return 0
        gate = _lufs(self._energies.sum() / counted) + _RELATIVE_GATE_LU
        return max(0, int((gate - _GATE_LUFS) / _BIN_LU))


class TruePeakLimiter:
    """Limiter of a stream's true peaks to -1 dBTP; holds back the last 9 ms."""

    def __init__(self, sample_rate: int, oversampling: int = _OVERSAMPLING) -> None:
        """An `oversampling` of 1 does not limit peaks between samples."""
        self._oversampling = oversampling
        self._look_ahead = round(_LOOK_AHEAD_S * sample_rate)
        self._reach = 2 * self._look_ahead + _RESAMPLER_REACH
        # Samples that were returned but still shape the gain, then those held back.
        self._pcm: Pcm = np.zeros(self._reach, dtype=np.float32)

    def process(self, pcm: Pcm) -> Pcm:
        """Returns the samples whose neighbours are all known."""
        self._pcm = np.concatenate([self._pcm, pcm])
        ready = len(self._pcm) - 2 * self._reach
        if ready <= 0:
            return self._pcm[:0]
        limited = self._limited()[self._reach : self._reach + ready]
        self._pcm = self._pcm[ready:]
        return limited

    def flush(self) -> Pcm:
        """Returns the samples held back; the stream may continue afterwards."""
        rest = self.process(np.zeros(self._reach, dtype=np.float32))
        self._pcm = np.zeros(self._reach, dtype=np.float32)
        return rest

    def _limited(self) -> Pcm:
        ceiling = np.float32(10 ** ((PEAK_DB - _CEILING_MARGIN_DB) / 20))
        level = np.abs(self._pcm)
        if np.max(level) < ceiling / 2:  # speech never hides 6 dB between samples
            return self._pcm
        peaks = level
        if self._oversampling > 1:
            dense = np.abs(resample_poly(self._pcm, _OVERSAMPLING, 1, window=_RESAMPLER))
            peaks = np.maximum.reduce(
                [level, *(dense[at::_OVERSAMPLING] for at in range(_OVERSAMPLING))]
            )
        peaks[1:] = np.maximum(peaks[1:], peaks[:-1])  # covers one sample before and after
        gain = np.minimum(np.float32(1.0), ceiling / np.maximum(peaks, np.float32(1e-9)))
        window = 2 * self._look_ahead + 1
        smooth = uniform_filter1d(minimum_filter1d(gain, window), window)
        return np.asarray(self._pcm * np.minimum(smooth, gain), dtype=np.float32)


class LoudnessNormaliser:
    """Normaliser of a stream's integrated loudness, at most -1 dBTP, without looking ahead. It
    starts from the voice's remembered loudness, or measures it, and changes its gain inaudibly."""

    def __init__(self, target_lufs: float, remembered_lufs: float | None = None) -> None:
        self._target_lufs = target_lufs
        self._expected_lufs = _DEFAULT_LUFS if remembered_lufs is None else remembered_lufs
        self._weight_s = _DEFAULT_WEIGHT_S if remembered_lufs is None else _REMEMBERED_WEIGHT_S
        self._is_new = remembered_lufs is None
        self._sample_rate = 0
        self._gain_db: float | None = None

    def process(self, pcm: Pcm, sample_rate: int) -> Pcm:
        """Normalises float32 [n]; holds back the last 9 ms (look-ahead). `sample_rate` stays the
        same for the whole stream. Blocking: about 1 ms for 0.5 s."""
        if not self._sample_rate:
            self._sample_rate = sample_rate
            self._input = LoudnessMeter(sample_rate)
            self._output = LoudnessMeter(sample_rate)
            self._limiter = TruePeakLimiter(sample_rate)
        if not len(pcm):
            return pcm
        self._input.push(pcm)
        return self._measured(self._limiter.process(self._adjust(pcm)))

    def flush(self) -> Pcm:
        """Returns the samples held back; the stream may continue afterwards."""
        if not self._sample_rate:
            return np.zeros(0, dtype=np.float32)
        return self._measured(self._limiter.flush())

    @property
    def measured_lufs(self) -> float | None:
        """Loudness of the input, to be remembered; None before 0.4 s of audio."""
        measured = self._input.lufs if self._sample_rate else -np.inf
        return measured if np.isfinite(measured) else None

    @property
    def measured_s(self) -> float:
        return self._input.measured_s if self._sample_rate else 0.0

    def _measured(self, pcm: Pcm) -> Pcm:
        self._output.push(pcm)
        return pcm

    def _adjust(self, pcm: Pcm) -> Pcm:
        """Amplifies `pcm`, and moves the gain towards the target no faster than allowed."""
        wanted_db = self._wanted_db(pcm)
        if self._gain_db is None:
            if not np.any(pcm):
                return pcm  # nothing is known yet
            self._gain_db = wanted_db
        is_fast = self._is_new and self._input.measured_s < _FAST_S
        max_step_db = (_FAST_DB_PER_S if is_fast else _SLOW_DB_PER_S) * len(pcm) / self._sample_rate
        before_db = self._gain_db
        self._gain_db += float(np.clip(wanted_db - before_db, -max_step_db, max_step_db))
        if self._gain_db == before_db:
            return _amplify(pcm, before_db)
        ramp_db = np.linspace(before_db, self._gain_db, len(pcm), dtype=np.float32)
        return np.asarray(pcm * 10 ** (ramp_db / 20), dtype=np.float32)

    def _wanted_db(self, pcm: Pcm) -> float:
        """Gain that would bring the whole stream to the target."""
        measured_s, level = self._input.measured_s, self._input.lufs
        if not np.isfinite(level):  # under 0.4 s: uses the plain power
            level = _lufs(float(np.mean(np.square(pcm))) or 1e-9)
            measured_s = len(pcm) / self._sample_rate if level > _GATE_LUFS else 0.0
        weight_s = self._weight_s + measured_s
        expected = (self._weight_s * self._expected_lufs + measured_s * level) / weight_s
        wanted_db = self._target_lufs - expected
        reached = self._output.lufs
        if np.isfinite(reached):
            # Corrects the loss in the limiter, and the error of the first estimate.
            trust = min(1.0, self._output.measured_s / _FAST_S)
            missing = _CORRECTION * trust * (self._target_lufs - reached)
            wanted_db += float(np.clip(missing, -_MAX_CORRECTION_DB, _MAX_CORRECTION_DB))
        return min(wanted_db, MAX_GAIN_DB)


def _amplify(pcm: Pcm, gain_db: float) -> Pcm:
    return np.asarray(pcm * np.float32(10 ** (gain_db / 20)), dtype=np.float32)


def _lufs(energy: float) -> float:
    return float(-0.691 + 10 * np.log10(energy))


@lru_cache(maxsize=16)
def _high_pass(sample_rate: int) -> NDArray[np.float64]:
    return np.asarray(butter(2, HIGH_PASS_HZ, "highpass", fs=sample_rate, output="sos"))


@lru_cache(maxsize=16)
def _k_weighting(sample_rate: int) -> NDArray[np.float64]:
    filters = Meter(sample_rate)._filters.values()
    return np.concatenate([tf2sos(stage.passband_gain * stage.b, stage.a) for stage in filters])


def stretch(pcm: Pcm, sample_rate: int, *, tempo: float = 1.0, pitch: float = 1.0) -> Pcm:
    """Stretches float32 [n] to [n / tempo], with every frequency times `pitch`."""
    if (tempo == 1.0 and pitch == 1.0) or not len(pcm):
        return pcm
    wanted = round(len(pcm) / tempo)
    shortest = int(_SHORTEST_STRETCHED_S * sample_rate)
    if len(pcm) < shortest:
        pcm = np.concatenate([pcm, np.zeros(shortest - len(pcm), dtype=np.float32)])
    stretcher = Signalsmith.Stretch()
    stretcher.preset(1, sample_rate)
    stretcher.setTimeFactor(tempo)
    stretcher.setTransposeFactor(pitch)
    channels = np.ascontiguousarray(pcm[np.newaxis], dtype=np.float32)  # [1, n]
    shaped: Pcm = np.asarray(stretcher.process(channels))[0]
    # The phase vocoder may overshoot; engines promise [-1, 1].
    return np.clip(shaped[:wanted], -1.0, 1.0).astype(np.float32)


class SeamTrimmer:
    """Trimmer of an engine's silence at both ends of a streamed chunk, with fades. Quiet samples
    are held back until louder ones follow, as are the last 4 ms (for the fade)."""

    def __init__(self, sample_rate: int) -> None:
        self._kept = int(_KEPT_S * sample_rate)
        self._fade = int(_FADE_S * sample_rate)
        self._held: Pcm = np.zeros(0, dtype=np.float32)
        self._sounding = 0  # samples of `_held` up to the last loud one
        self.given = 0  # samples returned
        self.trimmed = 0  # samples taken off the beginning; not known while `began` is false

    @property
    def began(self) -> bool:
        """Whether any loud sample has arrived."""
        return self.given > 0 or self._sounding > 0

    def push(self, pcm: Pcm) -> Pcm:
        """Returns the samples that are certainly kept, faded in at the beginning of the piece."""
        loud = np.flatnonzero(np.abs(pcm) > _SILENCE)
        held = len(self._held)
        whole = np.concatenate([self._held, pcm])
        if not self.began:
            lead = held + int(loud[0]) if len(loud) else len(whole)
            skipped = max(0, lead - self._kept)
            self.trimmed += skipped
            held, whole = held - skipped, whole[skipped:]
        if len(loud):
            self._sounding = held + int(loud[-1]) + 1
        sure = max(0, self._sounding - self._fade)
        if not self.given and sure < self._fade:
            sure = 0  # too short to decide the length of its fades
        self._held = whole[sure:]
        self._sounding -= sure
        return self._give(whole[:sure])

    def finish(self) -> Pcm:
        """Returns the end of the piece, faded out; empty when nothing in it was loud."""
        if not self.began:
            self.trimmed += len(self._held)
            return self._held[:0]
        rest = self._held[: self._sounding + self._kept - 1].copy()
        fade = min(self._fade, (self.given + len(rest)) // 2, len(rest))
        if fade:
            rest[-fade:] *= np.linspace(1.0, 0.0, fade, dtype=np.float32)
        return self._give(rest)

    def _give(self, pcm: Pcm) -> Pcm:
        if not self.given and len(pcm):
            pcm = pcm.copy()
            fade = min(self._fade, len(pcm))
            pcm[:fade] *= np.linspace(0.0, 1.0, fade, dtype=np.float32)
        self.given += len(pcm)
        return pcm


def silence(duration_s: float, sample_rate: int) -> Pcm:
    return np.zeros(round(duration_s * sample_rate), dtype=np.float32)
