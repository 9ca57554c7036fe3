"""The recogniser that the tests share."""

from pathlib import Path

import pytest

from models.errors import WeightsMissing
from models.registry import STT, load_model
from models.stt.whisper.engine import WhisperEngine
from models.weights.store import WeightStore


@pytest.fixture(scope="module")
def engine(weights: WeightStore) -> WhisperEngine:
    """Whisper with real weights; skips the test where they are missing."""
    try:
        engine, _ = load_model(STT, "stt/whisper_base", weights)
    except WeightsMissing as error:
        pytest.skip(str(error))
    assert isinstance(engine, WhisperEngine)
    return engine


@pytest.fixture(scope="module")
def folder(weights: WeightStore) -> Path:
    """The files of Whisper base; skips the test where they are missing."""
    try:
        return weights.folder("whisper-base")
    except WeightsMissing as error:
        pytest.skip(str(error))
