"""DNSMOS ratings of clean, noisy and long speech."""

import numpy as np
import pytest

from models.errors import WeightsMissing
from models.quality.base import QUALITY_SAMPLE_RATE, QualityEngine
from models.quality.dnsmos import INPUT_SAMPLES
from models.registry import QUALITY, load
from models.weights.store import WeightStore
from tests.models.sounds import speak

TEXT = "The morning train leaves the station before sunrise."


@pytest.fixture
def engine(weights: WeightStore) -> QualityEngine:
    try:
        return load(QUALITY, "quality/dnsmos", weights)
    except WeightsMissing as error:
        pytest.skip(str(error))


@pytest.mark.weights
def test_noise_lowers_the_rating_of_speech(engine: QualityEngine, weights: WeightStore) -> None:
    clean = speak(TEXT, weights)
    noise = 0.05 * np.random.default_rng(1).standard_normal(len(clean))
    good, bad = engine.rate(clean), engine.rate(np.asarray(clean + noise, np.float32))
    assert 2.8 < good < 5
    assert bad < good - 0.5


@pytest.mark.weights
def test_a_long_signal_is_rated_by_the_mean_of_its_windows(
    engine: QualityEngine, weights: WeightStore
) -> None:
    signal = np.resize(speak(TEXT, weights), 12 * QUALITY_SAMPLE_RATE)
    noise = np.random.default_rng(1).standard_normal(3 * QUALITY_SAMPLE_RATE)
    signal[-len(noise) :] += 0.05 * noise.astype(np.float32)
    starts = [seconds * QUALITY_SAMPLE_RATE for seconds in range(3)]  # the third begins at 2 s
    windows = [engine.rate(signal[at : at + INPUT_SAMPLES]) for at in starts]
    assert max(windows) - min(windows) > 0.1
    assert engine.rate(signal) == pytest.approx(np.mean(windows), abs=1e-4)
