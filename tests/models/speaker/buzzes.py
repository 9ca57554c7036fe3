"""Deterministic buzzing signals, for comparisons with the Resemblyzer library."""

import numpy as np

from models.audio import Pcm
from models.speaker.base import SPEAKER_SAMPLE_RATE

BUZZES = {"short": (0.9, 210.0, 0.02), "even": (1.6, 120.0, 0.004), "long": (5.37, 155.0, 0.3)}
"""Seconds, Hz and level; the library makes the quiet ones louder."""


def buzz(duration_s: float, hz: float, level: float) -> Pcm:
    """Harmonics under two moving formants, swelling four times a second; float32 at 16 kHz."""
    time_s = np.arange(round(duration_s * SPEAKER_SAMPLE_RATE)) / SPEAKER_SAMPLE_RATE
    first = 550 + 200 * np.sin(2 * np.pi * 1.3 * time_s)
    second = 1700 + 500 * np.sin(2 * np.pi * 0.9 * time_s + 1)
    pcm = np.zeros(len(time_s))
    for harmonic in range(1, int(3800 / hz)):
        tone_hz = harmonic * hz
        formants = np.exp(-(((tone_hz - first) / 150) ** 2))
        formants += 0.5 * np.exp(-(((tone_hz - second) / 250) ** 2))
        pcm += (0.02 + formants) * np.sin(2 * np.pi * tone_hz * time_s)
    pcm *= 0.55 - 0.45 * np.cos(2 * np.pi * 4 * time_s)
    return np.asarray(level * pcm / np.abs(pcm).max(), np.float32)
