"""Formant shifting, which keeps the pitch."""

import numpy as np
import pytest

from models.audio import Pcm
from models.tts.formants import BLOCK_FRAMES, FRAME_S, OVERLAP, with_formants

RATE = 24_000
PITCH_HZ, FORMANT_HZ = 120, 1500


def vowel(seconds: float = 1.0) -> Pcm:
    """Harmonics of PITCH_HZ with a formant at FORMANT_HZ."""
    hz = PITCH_HZ * np.arange(1, 50)
    levels = np.exp(-np.square((hz - FORMANT_HZ) / 400) / 2) + 0.003
    times = np.arange(int(seconds * RATE)) / RATE
    sound = sum(
        level * np.cos(2 * np.pi * one * times) for one, level in zip(hz, levels, strict=True)
    )
    return np.asarray(0.03 * sound, np.float32)


def formant_hz(pcm: Pcm) -> float:
    """The spectral centroid of a signal with one formant."""
    power = np.square(np.abs(np.fft.rfft(pcm * np.hanning(len(pcm)))))
    return float(power @ np.fft.rfftfreq(len(pcm), 1 / RATE) / power.sum())


def period(pcm: Pcm) -> int:
    """The pitch period of a low voice in samples, by autocorrelation."""
    middle = pcm[RATE // 4 : RATE // 4 + 4800].astype(np.float64)
    alike = np.correlate(middle, middle, "full")[len(middle) - 1 :]
    return 100 + int(alike[100:400].argmax())


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_shifting_the_formants_keeps_the_pitch(factor: float) -> None:
    plain = vowel()
    moved = with_formants(plain, factor, RATE)
    assert moved.dtype == np.float32 and len(moved) == len(plain)
    assert formant_hz(plain) == pytest.approx(FORMANT_HZ, rel=0.03)
    assert formant_hz(moved) == pytest.approx(factor * FORMANT_HZ, rel=0.05)
    assert period(moved) == period(plain) == RATE // PITCH_HZ


def test_a_warp_of_one_returns_the_signal_itself() -> None:
    plain = vowel(0.1)
    assert with_formants(plain, 1.0, RATE) is plain


@pytest.mark.parametrize("samples", [0, 1, 191, 192, 768, 5000])
def test_a_warp_near_one_reconstructs_signals_of_any_length(samples: int) -> None:
    plain = vowel()[:samples]
    made = with_formants(plain, 1.0 + 1e-9, RATE)
    np.testing.assert_allclose(made, plain, atol=1e-5)


def test_a_long_signal_has_no_seams_between_blocks() -> None:
    """Blocks divide only the computation."""
    hop = round(FRAME_S * RATE / OVERLAP)
    seam = BLOCK_FRAMES * hop
    plain = vowel((seam + RATE) / RATE)
    whole = with_formants(plain, 1.1, RATE)
    # Frames are on the same grid, and equal when far enough from the new edges.
    start = seam - 40 * hop
    part = with_formants(plain[start:], 1.1, RATE)
    np.testing.assert_allclose(whole[start + 8 * hop :], part[8 * hop :], atol=1e-5)


def test_silence_stays_silent_and_its_edges_do_not_click() -> None:
    tone = np.sin(2 * np.pi * 300 * np.arange(RATE // 2) / RATE) * np.hanning(RATE // 2)
    plain = np.pad(0.3 * tone, RATE // 4).astype(np.float32)
    moved = with_formants(plain, 1.2, RATE)
    assert np.abs(moved[: RATE // 5]).max() < 1e-4
    assert np.abs(np.diff(moved)).max() < 3 * np.abs(np.diff(plain)).max()
    assert not with_formants(np.zeros(RATE, np.float32), 1.2, RATE).any()
