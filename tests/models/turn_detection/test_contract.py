"""The contract of every turn detector, with each configuration of `configs/turn_detection`."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from models.audio import Pcm
from models.registry import TURN_DETECTION
from models.turn_detection.base import TurnDetectionEngine
from models.vad.base import VAD_SAMPLE_RATE
from models.weights.store import WeightStore
from tests.models.configured import configurations, configured
from tests.models.sounds import speak, wordless

SILENCE = np.zeros(VAD_SAMPLE_RATE // 5, np.float32)


@pytest.fixture(params=configurations(TURN_DETECTION))
def engine(request: pytest.FixtureRequest) -> TurnDetectionEngine:
    return configured(TURN_DETECTION, request.param)


@pytest.fixture
def sentence(weights: WeightStore) -> Pcm:
    return speak("I would like to book a table for two on Friday evening.", weights)


def test_a_sentence_sounds_more_complete_than_its_beginning(
    engine: TurnDetectionEngine, sentence: Pcm
) -> None:
    whole = engine.completeness(np.concatenate([sentence, SILENCE]))
    beginning = np.concatenate([sentence[: len(sentence) // 4], SILENCE])  # "I would like to"
    assert 0 <= engine.completeness(beginning) < 0.5 < whole <= 1


def test_signals_of_any_length_and_without_speech_have_a_probability(
    engine: TurnDetectionEngine, sentence: Pcm
) -> None:
    signals = [np.zeros(0, np.float32), sentence[:1], np.tile(sentence, 10), *wordless(1).values()]
    for pcm in signals:
        assert 0 <= engine.completeness(pcm) <= 1


def test_concurrent_questions_do_not_mix(engine: TurnDetectionEngine, sentence: Pcm) -> None:
    signals = [sentence[: len(sentence) * part // 6] for part in range(1, 7)]
    alone = [engine.completeness(pcm) for pcm in signals]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(engine.completeness, signals)) == pytest.approx(alone, abs=1e-4)
