"""Loaded text-to-speech engines and their speech, for tests."""

import numpy as np

from models.audio import Pcm
from models.base import ModelInfo
from models.registry import TTS
from models.tts.base import SynthesisRequest, TTSEngine
from tests.models.configured import described


def loaded(name: str) -> tuple[TTSEngine, ModelInfo]:
    """The engine of `configs/tts/<name>.yaml`; skips the test when a part is not installed."""
    return described(TTS, name)


def speech(engine: TTSEngine, request: SynthesisRequest) -> Pcm:
    return np.concatenate([np.zeros(0, np.float32), *(c.pcm for c in engine.synthesize(request))])
