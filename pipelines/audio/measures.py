"""Measures of a recording: signal-to-noise ratio, level, clipping, treble and pitch. The pitch is
found by autocorrelation, normalised by that of the window (Boersma 1993)."""

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.vad.base import VAD_SAMPLE_RATE, Probabilities

SILENT = 1e-9  # mean square of a frame of digital silence
MOST_SNR_DB = 80.0
QUIET_FRAMES = 10  # so many frames without speech suffice to measure the noise
SURELY_QUIET = 0.2  # probability of speech
PEAK_SHARE = 0.98  # ratio of a clipped sample to the loudest
TELEPHONE_HZ = 4_800  # telephones carry nothing above, with a margin for the filters of resamplers
TREBLE_WINDOW = 512
TREBLE_PERCENTILE = 95  # the frames of hissing consonants
ENVELOPE_FRAME = 512  # 32 ms
ENVELOPE_DB = 40.0  # range of levels that are compared, below the loudest
ENVELOPE_LAGS = 16  # frames
PITCH_HZ = (60.0, 400.0)
PITCH_WINDOW = 1024
MOST_PITCH_FRAMES = 1000
MIN_PERIODICITY = 0.6  # minimum for a frame that has a pitch
NEAR_BEST = 0.85  # least likelihood of a period, relative to the likeliest

Speech = NDArray[np.bool_]  # whether each frame of the detector holds speech


def _powers(pcm: Pcm, frame_samples: int, frames: int) -> NDArray[np.float64]:
    padded = np.zeros(frames * frame_samples, np.float32)
    padded[: len(pcm)] = pcm[: len(padded)]
    squares = np.square(padded.reshape(frames, frame_samples))
    return np.asarray(squares.mean(axis=1, dtype=np.float64))


def speech_only(pcm: Pcm, speech: Speech, frame_samples: int) -> Pcm:
    kept = np.repeat(speech, frame_samples)[: len(pcm)]
    return pcm[: len(kept)][kept]


def snr_db(pcm: Pcm, probabilities: Probabilities, speech: Speech, frame_samples: int) -> float:
    """Measures how much louder the speech is than its pauses, in dB; without a pause, than its
    quietest frames. Digital silence is ignored, since it holds no noise of the room."""
    powers = _powers(pcm, frame_samples, len(speech))
    sounding = powers > SILENT
    spoken = powers[speech & sounding]
    if not len(spoken):
        return 0.0
    quiet = powers[(probabilities < SURELY_QUIET) & ~speech & sounding]
    if len(quiet) >= QUIET_FRAMES:
        noise = float(np.median(quiet))
    else:
        noise = float(np.percentile(spoken, 5))
    signal = float(spoken.mean()) - noise
    if signal <= 0:
        return 0.0
    return min(MOST_SNR_DB, 10 * float(np.log10(signal / noise)))


def level_dbfs(pcm: Pcm) -> float:
    """Measure the root mean square in dBFS; -inf for silence."""
    power = float(np.square(pcm).mean(dtype=np.float64)) if len(pcm) else 0.0
    return 10 * float(np.log10(power)) if power > 0 else -np.inf


def envelope_correlation(first: Pcm, second: Pcm) -> float:
    """Correlate the levels of two signals, float32 [n], at the best of the lags up to 0.5 s. One
    voice at two microphones has 0.78 or more, even with 2 s of reverberation on one of them; two
    people have 0.53 or less."""
    frames = len(first) // ENVELOPE_FRAME
    levels = []
    for pcm in (first, second):
        level = 10 * np.log10(_powers(pcm, ENVELOPE_FRAME, frames) + 1e-12)
        levels.append(np.maximum(level, level.max() - ENVELOPE_DB))
    return max(
        float(np.corrcoef(levels[k][lag:], levels[1 - k][: frames - lag])[0, 1])
        for lag in range(min(ENVELOPE_LAGS, frames // 2))
        for k in (0, 1)
    )


def clipped_share(pcm: Pcm) -> float:
    """Measures the share of the signal at its own peak, which only clipping makes large."""
    loud = np.abs(pcm)
    peak = float(loud.max(initial=0.0))
    if peak == 0.0:
        return 0.0
    return float((loud >= PEAK_SHARE * peak).mean())


def treble_db(speech: Pcm) -> float:
    """Measure the power above TELEPHONE_HZ in the frames that have most of it, in dB relative to
    the mean power of the speech, float32 [n] at VAD_SAMPLE_RATE."""
    frames = speech[: len(speech) // TREBLE_WINDOW * TREBLE_WINDOW].reshape(-1, TREBLE_WINDOW)
    powers = np.square(np.abs(np.fft.rfft(frames * np.hanning(TREBLE_WINDOW)))) + SILENT
    first = TELEPHONE_HZ * TREBLE_WINDOW // VAD_SAMPLE_RATE
    treble = np.percentile(powers[:, first:].sum(axis=1), TREBLE_PERCENTILE)
    return 10 * float(np.log10(treble / powers.sum(axis=1).mean()))


def pitch_hz(speech: Pcm) -> float | None:
    """Measures the median fundamental of speech at VAD_SAMPLE_RATE; None without any."""
    pitches = pitches_hz(speech)
    return float(np.median(pitches)) if len(pitches) else None


def pitches_hz(speech: Pcm) -> NDArray[np.float32]:
    """Measures the fundamental of frames that have one, of at most MOST_PITCH_FRAMES."""
    frames = len(speech) // PITCH_WINDOW
    if not frames:
        return np.zeros(0, np.float32)
    chosen = np.linspace(0, frames - 1, min(frames, MOST_PITCH_FRAMES)).astype(int)
    windows = speech[: frames * PITCH_WINDOW].reshape(frames, PITCH_WINDOW)[chosen]
    hann = np.asarray(np.hanning(PITCH_WINDOW), np.float64)
    windows = (windows - windows.mean(axis=1, keepdims=True)) * hann
    taper = _autocorrelation(hann[None])[0]
    likeness = _autocorrelation(windows)
    first, last = (round(VAD_SAMPLE_RATE / hz) for hz in reversed(PITCH_HZ))
    energy = likeness[:, :1]
    voiced = energy[:, 0] > 0
    shares = likeness[voiced, first : last + 1] / energy[voiced]
    shares /= (taper[first : last + 1] / taper[0])[None]  # corrects the bias against long periods
    highest = shares.max(axis=1, keepdims=True)
    inner = shares[:, 1:-1]
    peaks = (inner >= shares[:, :-2]) & (inner >= shares[:, 2:]) & (inner >= NEAR_BEST * highest)
    # The first of the peaks: what repeats after a period repeats after two as well.
    periods = (peaks.argmax(axis=1) + first + 1)[
        peaks.any(axis=1) & (highest[:, 0] >= MIN_PERIODICITY)
    ]
    return np.asarray(VAD_SAMPLE_RATE / periods, np.float32)


def _autocorrelation(windows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the autocorrelation at each lag, [n, PITCH_WINDOW]."""
    spectrum = np.fft.rfft(windows, 2 * PITCH_WINDOW)
    return np.fft.irfft(np.square(np.abs(spectrum)))[:, :PITCH_WINDOW]
