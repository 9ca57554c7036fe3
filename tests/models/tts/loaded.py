"""Loaded text-to-speech engines and their speech, for tests."""

from functools import cache

import numpy as np

from models.audio import AudioChunk, Pcm
from models.base import ModelInfo
from models.registry import TTS
from models.tts.base import SynthesisRequest, TTSEngine
from tests.models.configured import described


def loaded(name: str) -> tuple[TTSEngine, ModelInfo]:
    """The engine of `configs/tts/<name>.yaml`; skips the test when a part is not installed."""
    return described(TTS, name)


@cache
def chunks_of(engine: TTSEngine, request: SynthesisRequest) -> tuple[AudioChunk, ...]:
    """The speech of a request, which is synthesised once for all tests of a run."""
    return tuple(engine.synthesize(request))


def speech(engine: TTSEngine, request: SynthesisRequest) -> Pcm:
    return np.concatenate([np.zeros(0, np.float32), *(c.pcm for c in engine.synthesize(request))])
