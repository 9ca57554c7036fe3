"""Tests of restored peaks."""

import numpy as np
import pytest
from scipy.signal import lfilter

from models.audio import Pcm
from pipelines.audio import declipping
from pipelines.audio.declipping import declipped, is_clipped

RATE = 16_000


def vowels(seconds: float) -> Pcm:
    """Pulses of a voice through two formants, with a peak of 1."""
    voice = np.zeros(round(seconds * RATE))
    pulses = voice[:: RATE // 120]
    pulses[:] = np.linspace(1.0, 0.5, len(pulses))
    for hz, width_hz in ((600, 80), (1400, 120)):
        radius = np.exp(-np.pi * width_hz / RATE)
        angle = 2 * np.pi * hz / RATE
        voice = np.asarray(lfilter([1.0], [1.0, -2 * radius * np.cos(angle), radius**2], voice))
    return np.asarray(voice / np.abs(voice).max(), np.float32)


def clipped(pcm: Pcm, times: float) -> Pcm:
    return np.asarray(np.clip(times * pcm, -1, 1), np.float32)


def likeness_db(pcm: Pcm, other: Pcm) -> float:
    """The signal-to-noise ratio of `other`, whatever its level."""
    gain = float(pcm @ other) / float(other @ other)
    return float(10 * np.log10((pcm @ pcm) / np.sum((pcm - gain * other) ** 2)))


@pytest.mark.parametrize("times", [2.0, 4.0])
def test_clipped_peaks_are_restored(times: float) -> None:
    speech = vowels(4.0)
    damaged = clipped(speech, times)
    assert is_clipped(damaged) and is_clipped(np.asarray(damaged / 30, np.float32))
    restored = np.concatenate(list(declipped(damaged)))
    assert restored.dtype == np.float32 and len(restored) == len(speech)
    assert likeness_db(speech, restored) > likeness_db(speech, damaged) + 4


def test_sounds_that_are_not_clipped_are_recognised() -> None:
    time_s = np.arange(RATE) / RATE
    rng = np.random.default_rng(0)
    sounds = {
        "nothing": np.zeros(0),
        "silence": np.zeros(RATE),
        "tone": np.sin(2 * np.pi * 440 * time_s),
        "hum": np.sin(2 * np.pi * 50 * time_s),
        "noise": rng.standard_normal(RATE),
        "speech": vowels(1.0),
        "click": np.eye(1, RATE)[0],
    }
    assert not [name for name, pcm in sounds.items() if is_clipped(pcm.astype(np.float32))]


def test_blocks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = clipped(vowels(2.0), 3.0)
    whole = np.concatenate(list(declipped(damaged)))
    monkeypatch.setattr(declipping, "BLOCK", 8 * declipping.FRAME)
    blocks = list(declipped(damaged))
    assert len(blocks) > 5
    np.testing.assert_allclose(np.concatenate(blocks), whole, atol=1e-3)
