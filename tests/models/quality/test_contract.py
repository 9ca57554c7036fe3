"""The contract of every speech quality engine, with each configuration of `configs/quality`."""

import numpy as np
import pytest

from models.quality.base import QUALITY_SAMPLE_RATE, QualityEngine
from models.registry import QUALITY
from models.weights.store import WeightStore
from tests.models.configured import configurations, configured
from tests.models.sounds import speak


@pytest.fixture(params=configurations(QUALITY))
def engine(request: pytest.FixtureRequest) -> QualityEngine:
    return configured(QUALITY, request.param)


@pytest.mark.parametrize("seconds", [0.5, 12.0])
def test_ratings_are_mean_opinion_scores_of_signals_of_any_length(
    engine: QualityEngine, weights: WeightStore, seconds: float
) -> None:
    speech = speak("The river runs to the sea.", weights)
    assert 1 <= engine.rate(np.resize(speech, round(seconds * QUALITY_SAMPLE_RATE))) <= 5


def test_the_same_signal_has_the_same_rating(engine: QualityEngine, weights: WeightStore) -> None:
    speech = speak("The river runs to the sea.", weights)
    assert engine.rate(speech) == engine.rate(speech)
