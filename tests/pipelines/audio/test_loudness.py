"""Loudness of whole signals and streams against reference implementations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.audio import Pcm
from pipelines.audio.effects import (
    HighPass,
    LoudnessMeter,
    LoudnessNormaliser,
    TruePeakLimiter,
    enhance,
    limit,
)
from tests.pipelines.audio.reference_loudness import measure_lufs, true_peak
from tests.pipelines.stt.voiced import SAMPLE_RATE, cut, voiced

ONE_DB_UNDER = 10 ** (-1 / 20)


def speechlike(duration_s: float, level: float, sample_rate: int = 24_000) -> Pcm:
    """Two tones and noise, modulated in the rhythm of syllables."""
    rng = np.random.default_rng(5)
    time_s = np.arange(round(duration_s * sample_rate)) / sample_rate
    carrier = np.sin(2 * np.pi * 180 * time_s) + 0.5 * np.sin(2 * np.pi * 1100 * time_s)
    syllables = np.sin(2 * np.pi * 2 * time_s) ** 2
    pcm = level * (carrier * syllables + 0.05 * rng.standard_normal(len(time_s)))
    return np.asarray(pcm, dtype=np.float32)


def enhanced(pcm: Pcm, sample_rate: int, block_s: float = 2.0) -> Pcm:
    filtered = HighPass(sample_rate).process(pcm)
    size = round(block_s * sample_rate)
    return np.concatenate([pcm[:0], *enhance(lambda: cut(filtered, [size]), sample_rate)])


def decibels(level: float) -> float:
    return float(20 * np.log10(level))


@pytest.mark.parametrize("level", [0.01, 0.03, 0.2, 0.6])
@pytest.mark.parametrize("duration_s", [0.15, 0.5, 3.0])
@pytest.mark.parametrize("sample_rate", [16_000, 22_050, 24_000])
def test_enhanced_speech_reaches_the_target_loudness_below_the_true_peak_limit(
    level: float, duration_s: float, sample_rate: int
) -> None:
    shaped = enhanced(speechlike(duration_s, level, sample_rate), sample_rate)
    assert measure_lufs(shaped, sample_rate) == pytest.approx(-16, abs=0.5)
    assert decibels(true_peak(shaped, sample_rate)) <= -1.0
    assert shaped.dtype == np.float32


@pytest.mark.parametrize("level", [0.02, 0.6])
def test_enhanced_speech_does_not_depend_on_the_size_of_the_blocks(level: float) -> None:
    pcm = speechlike(9.0, level)
    whole = enhanced(pcm, 24_000, block_s=10.0)
    for block_s in (0.03, 1.0):
        np.testing.assert_allclose(enhanced(pcm, 24_000, block_s), whole, atol=2e-4)


def test_the_limiter_lowers_a_peak_and_keeps_the_audio_before_it() -> None:
    pcm = speechlike(1.0, 0.1)
    pcm[12_000:12_003] = 2.0
    limited = np.concatenate(list(limit([pcm], 24_000, gain_db=0.0)))
    assert decibels(true_peak(limited, 24_000)) <= -1.0
    assert np.array_equal(limited[:11_000], pcm[:11_000])


@pytest.mark.parametrize("samples", [0, 1, 50, 24_000])
def test_enhanced_silence_stays_silence(samples: int) -> None:
    shaped = enhanced(np.zeros(samples, dtype=np.float32), 24_000)
    assert len(shaped) == samples
    assert not np.any(shaped)


def test_faint_noise_is_not_amplified_to_the_loudness_of_speech() -> None:
    noise = (1e-5 * np.random.default_rng(1).standard_normal(24_000)).astype(np.float32)
    assert measure_lufs(enhanced(noise, 24_000), 24_000) < -40


def test_the_high_pass_removes_rumble_and_keeps_the_voice() -> None:
    time_s = np.arange(24_000) / 24_000

    def kept(hz: float) -> float:
        pcm = (0.1 * np.sin(2 * np.pi * hz * time_s)).astype(np.float32)
        return decibels(float(np.std(HighPass(24_000).process(pcm)[6000:]) / np.std(pcm[6000:])))

    assert kept(20) < -15
    assert kept(150) > -1


def speech(duration_s: float, level: float = 0.05) -> Pcm:
    """Sentences with pauses between them, and a loud word now and then."""
    sentences: list[Pcm] = []
    while sum(len(one) for one in sentences) < duration_s * SAMPLE_RATE:
        sentence = voiced(2.2, level)
        sentence[30_000:36_000] *= 2.0
        sentences += [sentence, np.zeros(6_000, dtype=np.float32)]
    return np.concatenate(sentences)[: round(duration_s * SAMPLE_RATE)]


def normalise(normaliser: LoudnessNormaliser, pcm: Pcm, sizes: list[int]) -> Pcm:
    parts = [normaliser.process(part, SAMPLE_RATE) for part in cut(pcm, sizes)]
    return np.concatenate([*parts, normaliser.flush()])


@pytest.mark.parametrize("level", [0.004, 0.05, 0.3])
@pytest.mark.parametrize("sizes", [[2400], [480, 12_000, 7], [1_000_000]])
def test_the_streaming_loudness_meter_matches_the_reference(level: float, sizes: list[int]) -> None:
    pcm = speech(9, level)
    meter = LoudnessMeter(SAMPLE_RATE)
    for part in cut(pcm, sizes):
        meter.push(part)
    assert meter.lufs == pytest.approx(measure_lufs(pcm, SAMPLE_RATE), abs=0.15)
    assert 6 < meter.measured_s < 9.5


def test_normalised_silence_has_no_loudness_and_stays_silence() -> None:
    normaliser = LoudnessNormaliser(-14.0)
    quiet = np.zeros(48_000, dtype=np.float32)
    assert not np.any(normalise(normaliser, quiet, [4800]))
    assert normaliser.measured_lufs is None


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=6))
@settings(max_examples=10, derandomize=True, database=None)
def test_the_streaming_limiter_does_not_depend_on_the_chunk_sizes(sizes: list[int]) -> None:
    pcm = np.concatenate([voiced(0.3, 0.9), voiced(0.2, 0.2), voiced(0.3, 1.5)])
    whole, parts = TruePeakLimiter(SAMPLE_RATE), TruePeakLimiter(SAMPLE_RATE)
    expected = np.concatenate([whole.process(pcm), whole.flush()])
    given_out = np.concatenate([*map(parts.process, cut(pcm, sizes)), parts.flush()])
    assert len(given_out) == len(pcm)
    np.testing.assert_allclose(given_out, expected, atol=1e-4)
    assert true_peak(given_out, SAMPLE_RATE) <= ONE_DB_UNDER


@pytest.mark.parametrize("target", [-14.0, -16.0])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.25])
@pytest.mark.parametrize("knows", [True, False])
def test_ten_seconds_of_normalised_speech_are_within_one_lu_of_the_target(
    target: float, level: float, knows: bool
) -> None:
    pcm = speech(10, level)
    known = measure_lufs(pcm, SAMPLE_RATE) if knows else None
    normalised = normalise(LoudnessNormaliser(target, known), pcm, [4800, 1200, 9600])
    assert len(normalised) == len(pcm)
    assert measure_lufs(normalised, SAMPLE_RATE) == pytest.approx(target, abs=1.0)
    assert true_peak(normalised, SAMPLE_RATE) <= ONE_DB_UNDER


def test_speech_of_known_loudness_reaches_the_target_within_three_seconds() -> None:
    pcm = speech(3)
    normalised = normalise(LoudnessNormaliser(-16.0, measure_lufs(pcm, SAMPLE_RATE)), pcm, [2400])
    assert measure_lufs(normalised, SAMPLE_RATE) == pytest.approx(-16.0, abs=1.0)


def test_the_gain_changes_less_than_1_5_db_a_second() -> None:
    """Steady audio stays steady: no pumping, no step where chunks meet."""
    pcm = speech(12)
    known = measure_lufs(pcm, SAMPLE_RATE) - 2.0  # with an error of 2 dB
    normalised = normalise(LoudnessNormaliser(-20.0, known), pcm, [4801])
    sounding = np.abs(pcm) > 0.01
    gain_db = 20 * np.log10(np.abs(normalised[sounding]) / np.abs(pcm[sounding]))
    places = np.flatnonzero(sounding) / SAMPLE_RATE
    change = np.abs(np.diff(gain_db)) / np.maximum(np.diff(places), 0.01)
    assert np.max(change) < 1.5  # dB a second


def test_a_normaliser_keeps_its_measured_loudness_after_a_flush() -> None:
    pcm = speech(8)
    normaliser = LoudnessNormaliser(-14.0)
    first = normalise(normaliser, pcm[: len(pcm) // 2], [2400])
    second = normalise(normaliser, pcm[len(pcm) // 2 :], [2400])
    assert len(first) + len(second) == len(pcm)
    assert normaliser.measured_lufs == pytest.approx(measure_lufs(pcm, SAMPLE_RATE), abs=0.2)
    assert measure_lufs(second, SAMPLE_RATE) == pytest.approx(-14.0, abs=1.0)
