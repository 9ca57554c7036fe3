"""Time stretching, pitch shifting and trimming of silence."""

import numpy as np
import pytest

from models.audio import Pcm
from pipelines.audio.effects import SeamTrimmer, silence, stretch

SAMPLE_RATE = 24_000
F0_HZ = 140.0


def voiced(duration_s: float) -> Pcm:
    """A buzz like a voice's: harmonics under a slow swell."""
    time_s = np.arange(round(duration_s * SAMPLE_RATE)) / SAMPLE_RATE
    buzz = sum(np.sin(2 * np.pi * F0_HZ * k * time_s) / k for k in range(1, 12))
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * time_s)
    return (0.1 * buzz * swell).astype(np.float32)


def trim(pcm: Pcm) -> Pcm:
    trimmer = SeamTrimmer(SAMPLE_RATE)
    return np.concatenate([trimmer.push(pcm), trimmer.finish()])


def f0_hz(pcm: Pcm) -> float:
    """The fundamental by autocorrelation of the middle, between 60 and 400 Hz."""
    middle = pcm[len(pcm) // 4 : -(len(pcm) // 4)].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle, 2 * len(middle))) ** 2
    correlation = np.fft.irfft(spectrum)
    first, last = SAMPLE_RATE // 400, SAMPLE_RATE // 60
    lag = first + int(np.argmax(correlation[first:last]))
    before, peak, after = correlation[lag - 1 : lag + 2]
    return float(SAMPLE_RATE / (lag + (before - after) / (2 * (before - 2 * peak + after))))


@pytest.mark.parametrize("tempo", [0.5, 0.8, 1.0, 1.25, 2.0])
@pytest.mark.parametrize("pitch", [0.5, 0.8, 1.0, 1.25, 2.0])
def test_tempo_and_pitch_are_changed_independently(tempo: float, pitch: float) -> None:
    pcm = voiced(2.0)
    shaped = stretch(pcm, SAMPLE_RATE, tempo=tempo, pitch=pitch)
    assert len(shaped) == pytest.approx(len(pcm) / tempo, rel=0.03)
    assert f0_hz(shaped) == pytest.approx(F0_HZ * pitch, rel=0.03)


def test_stretching_without_a_change_returns_the_same_array() -> None:
    pcm = voiced(0.2)
    assert stretch(pcm, SAMPLE_RATE) is pcm


@pytest.mark.parametrize("samples", [0, 1, 100, 2000])
def test_very_short_speech_is_stretched_to_its_exact_length(samples: int) -> None:
    shaped = stretch(voiced(1)[:samples], SAMPLE_RATE, tempo=2.0, pitch=1.3)
    assert len(shaped) == round(samples / 2)


def test_stretching_keeps_the_relative_position_of_an_impulse() -> None:
    pcm = silence(2.0, SAMPLE_RATE)
    pcm[SAMPLE_RATE] = 1.0
    shaped = stretch(pcm, SAMPLE_RATE, tempo=2.0)
    assert np.argmax(np.abs(shaped)) / SAMPLE_RATE == pytest.approx(0.5, abs=0.02)


def test_stretched_samples_stay_between_minus_one_and_one() -> None:
    loud = np.sign(voiced(1.0)).astype(np.float32)
    assert np.max(np.abs(stretch(loud, SAMPLE_RATE, tempo=0.7, pitch=1.2))) <= 1.0


def test_trimming_removes_padding_and_fades_the_ends() -> None:
    pcm = np.concatenate([silence(0.5, SAMPLE_RATE), voiced(0.5), silence(0.5, SAMPLE_RATE)])
    trimmed = trim(pcm)
    assert 0.5 <= len(trimmed) / SAMPLE_RATE <= 0.57
    assert abs(trimmed[0]) < 1e-3
    assert abs(trimmed[-1]) < 1e-3
    assert pcm[SAMPLE_RATE // 2 + 100] != 0  # the engine's array is not modified


def test_silence_is_trimmed_to_an_empty_array() -> None:
    assert len(trim(silence(1.0, SAMPLE_RATE))) == 0
