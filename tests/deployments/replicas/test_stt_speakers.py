"""Voices that a replica hears with the text; no cluster is needed."""

import numpy as np
import pytest

from deployments.replicas.stt import decode
from models.errors import WeightsMissing
from models.registry import SPEAKER, STT, load, load_model
from models.speaker.base import SpeakerEncoder
from models.stt.base import STTEngine, Transcript, TranscriptionRequest
from models.weights.store import WeightStore

PCM = np.sin(np.arange(16_000) / 5).astype(np.float32)
PLAIN = TranscriptionRequest(PCM, "en")
LABELLED = TranscriptionRequest(PCM, "en", voice_windows=((0, 8000), (8000, 16_000)))


@pytest.fixture
def engine(weights: WeightStore) -> STTEngine:
    return load_model(STT, "stt/scripted", weights)[0]


def test_only_who_asks_gets_voices(engine: STTEngine, weights: WeightStore) -> None:
    encoder = load(SPEAKER, "speaker/bands", weights)
    plain, labelled = decode(engine, [PLAIN, LABELLED], lambda: encoder)
    assert isinstance(plain, Transcript) and isinstance(labelled, Transcript)
    assert plain.voices is None
    assert labelled.voices is not None and labelled.voices.shape == (2, 256)


def test_an_encoder_that_cannot_load_fails_only_who_needs_it(engine: STTEngine) -> None:
    def missing() -> SpeakerEncoder:
        raise WeightsMissing("no weights")

    plain, labelled = decode(engine, [PLAIN, LABELLED], missing)
    assert isinstance(plain, Transcript)
    assert isinstance(labelled, WeightsMissing)
