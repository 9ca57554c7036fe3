"""Enhanced speech has the level that is promised."""

import numpy as np
import pytest

from models.audio import Pcm
from pipelines.audio.loudness import enhance, high_pass, limit, measure_lufs, true_peak


def speechlike(duration_s: float, level: float, sample_rate: int = 24_000) -> Pcm:
    """Noise of a voice's band in syllables."""
    rng = np.random.default_rng(5)
    time_s = np.arange(round(duration_s * sample_rate)) / sample_rate
    carrier = np.sin(2 * np.pi * 180 * time_s) + 0.5 * np.sin(2 * np.pi * 1100 * time_s)
    syllables = np.sin(2 * np.pi * 2 * time_s) ** 2
    pcm = level * (carrier * syllables + 0.05 * rng.standard_normal(len(time_s)))
    return np.asarray(pcm, dtype=np.float32)


def decibels(level: float) -> float:
    return float(20 * np.log10(level))


@pytest.mark.parametrize("level", [0.01, 0.03, 0.2, 0.6])
@pytest.mark.parametrize("duration_s", [0.15, 0.5, 3.0])
@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
def test_enhanced_speech_is_at_the_target(
    level: float, duration_s: float, sample_rate: int
) -> None:
    shaped = enhance(speechlike(duration_s, level, sample_rate), sample_rate)
    assert measure_lufs(shaped, sample_rate) == pytest.approx(-16, abs=0.5)
    assert decibels(true_peak(shaped, sample_rate)) <= -1.0
    assert shaped.dtype == np.float32


def test_a_peak_is_limited_and_the_rest_untouched() -> None:
    pcm = speechlike(1.0, 0.1)
    pcm[12_000:12_003] = 2.0
    limited = limit(pcm, 24_000)
    assert decibels(true_peak(limited, 24_000)) <= -1.0
    assert np.array_equal(limited[:11_000], pcm[:11_000])


@pytest.mark.parametrize("samples", [0, 1, 50, 24_000])
def test_silence_stays_silence(samples: int) -> None:
    shaped = enhance(np.zeros(samples, dtype=np.float32), 24_000)
    assert len(shaped) == samples
    assert not np.any(shaped)


def test_nearly_silent_noise_is_not_lifted_to_speech() -> None:
    noise = (1e-5 * np.random.default_rng(1).standard_normal(24_000)).astype(np.float32)
    assert measure_lufs(enhance(noise, 24_000), 24_000) < -40


def test_rumble_is_taken_out_and_the_voice_is_kept() -> None:
    time_s = np.arange(24_000) / 24_000

    def kept(hz: float) -> float:
        pcm = (0.1 * np.sin(2 * np.pi * hz * time_s)).astype(np.float32)
        return decibels(float(np.std(high_pass(pcm, 24_000)[6000:]) / np.std(pcm[6000:])))

    assert kept(20) < -15
    assert kept(150) > -1
