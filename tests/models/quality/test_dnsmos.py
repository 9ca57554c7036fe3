"""DNSMOS ratings of clean, noisy and long speech."""

import numpy as np
import pytest

from models.errors import WeightsMissing
from models.quality.base import QUALITY_SAMPLE_RATE, QualityEngine
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
    assert 2.8 < good.overall < 5
    assert bad.background < good.background - 1
    assert bad.overall < good.overall - 0.5


@pytest.mark.weights
def test_a_long_signal_is_rated_like_its_parts(engine: QualityEngine, weights: WeightStore) -> None:
    clean = np.resize(speak(TEXT, weights), 11 * QUALITY_SAMPLE_RATE)
    assert abs(engine.rate(clean).overall - engine.rate(clean[: len(clean) // 3]).overall) < 0.5
