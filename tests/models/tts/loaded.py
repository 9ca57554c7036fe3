"""Engines for the tests of this folder, each loaded once."""

from functools import cache

import numpy as np
import pytest

from configs.settings import weights_dir
from models.audio import Pcm
from models.errors import UnsupportedFeature, WeightsMissing
from models.info import ModelInfo
from models.loading import load_model
from models.registry import TTS
from models.tts.base import SynthesisRequest, TTSEngine
from models.weights.store import WeightStore


@cache
def _load(name: str) -> tuple[TTSEngine, ModelInfo]:
    return load_model(TTS, f"tts/{name}", WeightStore(weights_dir()))


def loaded(name: str) -> tuple[TTSEngine, ModelInfo]:
    """The engine of that registry name; skips the test when a part of it is not installed."""
    try:
        return _load(name)
    except (WeightsMissing, UnsupportedFeature) as error:
        pytest.skip(str(error))


def speech(engine: TTSEngine, request: SynthesisRequest) -> Pcm:
    return np.concatenate([np.zeros(0, np.float32), *(c.pcm for c in engine.synthesize(request))])
