"""A stream's loudness is measured as a whole's is, and ridden without being heard."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.audio import Pcm
from pipelines.audio.loudness import measure_lufs, true_peak
from pipelines.audio.stream_loudness import LoudnessMeter, LoudnessNormaliser, PeakLimiter
from tests.pipelines.stt.voiced import SAMPLE_RATE, cut, voiced

ONE_DB_UNDER = 10 ** (-1 / 20)


def speech(duration_s: float, level: float = 0.05) -> Pcm:
    """Sentences with pauses between them, and a loud word now and then."""
    sentences: list[Pcm] = []
    while sum(len(one) for one in sentences) < duration_s * SAMPLE_RATE:
        sentence = voiced(2.2, level)
        sentence[30_000:36_000] *= 2.0
        sentences += [sentence, np.zeros(6_000, dtype=np.float32)]
    return np.concatenate(sentences)[: round(duration_s * SAMPLE_RATE)]


def ride(rider: LoudnessNormaliser, pcm: Pcm, sizes: list[int]) -> Pcm:
    parts = [rider.process(part, SAMPLE_RATE) for part in cut(pcm, sizes)]
    return np.concatenate([*parts, rider.flush()])


@pytest.mark.parametrize("level", [0.004, 0.05, 0.3])
@pytest.mark.parametrize("sizes", [[2400], [480, 12_000, 7], [1_000_000]])
def test_a_stream_measures_as_the_whole_does(level: float, sizes: list[int]) -> None:
    pcm = speech(9, level)
    meter = LoudnessMeter(SAMPLE_RATE)
    for part in cut(pcm, sizes):
        meter.push(part)
    assert meter.lufs == pytest.approx(measure_lufs(pcm, SAMPLE_RATE), abs=0.15)
    assert 6 < meter.sounding_s < 9.5


def test_silence_has_no_loudness_and_stays_silence() -> None:
    rider = LoudnessNormaliser(-14.0)
    quiet = np.zeros(48_000, dtype=np.float32)
    assert not np.any(ride(rider, quiet, [4800]))
    assert rider.measured_lufs is None


@given(sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=6))
@settings(max_examples=10, derandomize=True, database=None)
def test_a_limited_stream_is_the_same_however_it_is_cut(sizes: list[int]) -> None:
    pcm = np.concatenate([voiced(0.3, 0.9), voiced(0.2, 0.2), voiced(0.3, 1.5)])
    whole, parts = PeakLimiter(SAMPLE_RATE), PeakLimiter(SAMPLE_RATE)
    expected = np.concatenate([whole.process(pcm), whole.flush()])
    given_out = np.concatenate([*map(parts.process, cut(pcm, sizes)), parts.flush()])
    assert len(given_out) == len(pcm)
    np.testing.assert_allclose(given_out, expected, atol=1e-4)
    assert true_peak(given_out, SAMPLE_RATE) <= ONE_DB_UNDER


@pytest.mark.parametrize("target", [-14.0, -16.0])
@pytest.mark.parametrize("level", [0.01, 0.05, 0.25])
@pytest.mark.parametrize("knows", [True, False])
def test_ten_seconds_are_within_one_lu_of_the_target(
    target: float, level: float, knows: bool
) -> None:
    pcm = speech(10, level)
    known = measure_lufs(pcm, SAMPLE_RATE) if knows else None
    ridden = ride(LoudnessNormaliser(target, known), pcm, [4800, 1200, 9600])
    assert len(ridden) == len(pcm)
    assert measure_lufs(ridden, SAMPLE_RATE) == pytest.approx(target, abs=1.0)
    assert true_peak(ridden, SAMPLE_RATE) <= ONE_DB_UNDER


def test_a_remembered_voice_begins_at_the_target() -> None:
    pcm = speech(3)
    ridden = ride(LoudnessNormaliser(-16.0, measure_lufs(pcm, SAMPLE_RATE)), pcm, [2400])
    assert measure_lufs(ridden, SAMPLE_RATE) == pytest.approx(-16.0, abs=1.0)


def test_the_gain_never_moves_audibly() -> None:
    """A steady sound stays steady: no pumping, no step where chunks meet."""
    pcm = speech(12)
    known = measure_lufs(pcm, SAMPLE_RATE) - 2.0  # remembered a little wrong
    ridden = ride(LoudnessNormaliser(-20.0, known), pcm, [4801])
    sounding = np.abs(pcm) > 0.01
    gain_db = 20 * np.log10(np.abs(ridden[sounding]) / np.abs(pcm[sounding]))
    places = np.flatnonzero(sounding) / SAMPLE_RATE
    change = np.abs(np.diff(gain_db)) / np.maximum(np.diff(places), 0.01)
    assert np.max(change) < 1.5  # dB a second


def test_a_rider_goes_on_after_a_flush() -> None:
    pcm = speech(8)
    rider = LoudnessNormaliser(-14.0)
    first = ride(rider, pcm[: len(pcm) // 2], [2400])
    second = ride(rider, pcm[len(pcm) // 2 :], [2400])
    assert len(first) + len(second) == len(pcm)
    assert rider.measured_lufs == pytest.approx(measure_lufs(pcm, SAMPLE_RATE), abs=0.2)
    assert measure_lufs(second, SAMPLE_RATE) == pytest.approx(-14.0, abs=1.0)
