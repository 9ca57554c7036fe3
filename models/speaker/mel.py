"""Mel spectra in the form of the speaker encoder's training: power, not its logarithm."""

from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from models.audio import Pcm
from models.speaker.base import SPEAKER_SAMPLE_RATE

MEL_BANDS = 40
FRAME_SAMPLES = 400  # 25 ms
HOP_SAMPLES = 160  # 10 ms
BLOCK_FRAMES = 4096  # 41 s; bounds the memory for a long signal

# Slaney's mel scale: linear up to 1 kHz, then logarithmic.
_MEL_HZ = 200 / 3
_KNEE_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27

Mels: TypeAlias = NDArray[np.float32]
"""float32 [frames, 40]; frame i is centred at sample 160 i."""


def mel_spectrum(pcm: Pcm) -> Mels:
    """The spectrum of float32 [n] at 16 kHz, padded with silence: n // 160 + 1 frames."""
    edge = FRAME_SAMPLES // 2
    padded = np.pad(pcm.astype(np.float32, copy=False), edge)
    frames = sliding_window_view(padded, FRAME_SAMPLES)[::HOP_SAMPLES]
    window, bands = _window(), _bands()
    mels = np.empty((len(frames), MEL_BANDS), np.float32)
    for start in range(0, len(frames), BLOCK_FRAMES):
        spectrum = np.fft.rfft(frames[start : start + BLOCK_FRAMES] * window)
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        mels[start : start + BLOCK_FRAMES] = power.astype(np.float32) @ bands
    return mels


def mel_centres_hz() -> NDArray[np.float64]:
    """The centre frequency of each band, [40]."""
    return _edges_hz()[1:-1]


@cache
def _edges_hz() -> NDArray[np.float64]:
    """The edges and centres of the bands: band i spans i to i + 2, [42]."""
    top_mel = _KNEE_HZ / _MEL_HZ + np.log(SPEAKER_SAMPLE_RATE / 2 / _KNEE_HZ) / _LOG_STEP
    mels = np.linspace(0, top_mel, MEL_BANDS + 2)
    above_knee = np.maximum(mels - _KNEE_HZ / _MEL_HZ, 0)
    return np.where(above_knee > 0, _KNEE_HZ * np.exp(above_knee * _LOG_STEP), mels * _MEL_HZ)


@cache
def _window() -> NDArray[np.float32]:
    """Hann's, periodic."""
    phase = 2 * np.pi * np.arange(FRAME_SAMPLES) / FRAME_SAMPLES
    return np.asarray(0.5 - 0.5 * np.cos(phase), np.float32)


@cache
def _bands() -> NDArray[np.float32]:
    """Triangles of equal area, float32 [frequencies, 40]."""
    edges = _edges_hz()
    frequencies = np.fft.rfftfreq(FRAME_SAMPLES, 1 / SPEAKER_SAMPLE_RATE)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    rising = (frequencies - low) / (middle - low)
    falling = (high - frequencies) / (high - middle)
    triangles = np.maximum(np.minimum(rising, falling), 0)
    return np.asarray(triangles * 2 / (high - low), np.float32)
