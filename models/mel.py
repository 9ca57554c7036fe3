"""Windows and mel filters for speech at 16 kHz: frames of 25 ms, one every 10 ms. Slaney's mel
scale and triangles of equal area (Slaney, "Auditory Toolbox", 1998), as in librosa, Whisper and
Resemblyzer: linear up to 1 kHz, then logarithmic."""

from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

MEL_SAMPLE_RATE = 16_000
FRAME_SAMPLES = 400
HOP_SAMPLES = 160

_MEL_HZ = 200 / 3
_KNEE_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27


def frames_of(padded: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a view of the frames, float32 [n // 160 + 1, 400], of a signal that is padded with
    half a frame, 200 samples, at each end."""
    return sliding_window_view(padded, FRAME_SAMPLES)[::HOP_SAMPLES]


def mel_power(frames: NDArray[np.float32], bands: int) -> NDArray[np.float32]:
    """Return the power of each frame in each band, float32 [frames, bands]."""
    spectrum = np.fft.rfft(frames * _window())
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    return np.asarray(power.astype(np.float32, copy=False) @ _filters(bands), np.float32)


@cache
def mel_edges_hz(bands: int) -> NDArray[np.float64]:
    """Return the edges and centres of the bands, float64 [bands + 2]: band i spans i to i + 2."""
    top_mel = _KNEE_HZ / _MEL_HZ + np.log(MEL_SAMPLE_RATE / 2 / _KNEE_HZ) / _LOG_STEP
    mels = np.linspace(0, top_mel, bands + 2)
    above_knee = np.maximum(mels - _KNEE_HZ / _MEL_HZ, 0)
    return np.where(above_knee > 0, _KNEE_HZ * np.exp(above_knee * _LOG_STEP), mels * _MEL_HZ)


@cache
def _window() -> NDArray[np.float32]:
    """Return a periodic Hann window."""
    phase = 2 * np.pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES
    return np.asarray(0.5 - 0.5 * np.cos(phase), np.float32)


@cache
def _filters(bands: int) -> NDArray[np.float32]:
    """Return triangular filters, float32 [frequencies, bands]."""
    edges = mel_edges_hz(bands)
    frequencies = np.fft.rfftfreq(FRAME_SAMPLES, 1 / MEL_SAMPLE_RATE)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - low) / (middle - low)
    falling = (high - frequencies) / (high - middle)
    triangles = np.maximum(np.minimum(rising, falling), 0)
    return np.asarray(triangles * 2 / (high - low), np.float32)
