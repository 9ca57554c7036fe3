"""Speaker embeddings that an STT replica adds to transcripts; no cluster is needed."""

import numpy as np
import pytest

from deployments.replicas.stt import decode
from models.errors import WeightsMissing
from models.memory import BatchLimit
from models.registry import STT, load_model
from models.speaker.base import SpeakerEncoder
from models.stt.base import STTEngine, Transcript, TranscriptionRequest
from models.weights.store import WeightStore
from tests.engines import SCRIPTED
from tests.models.speaker.bands import BandsEngine

PCM = np.sin(np.arange(16_000) / 5).astype(np.float32)
PLAIN = TranscriptionRequest(PCM, "en")
LABELLED = TranscriptionRequest(PCM, "en", voice_windows=((0, 8000), (8000, 16_000)))


@pytest.fixture
def engine(weights: WeightStore) -> STTEngine:
    return load_model(STT, SCRIPTED, weights)[0]


def test_only_voice_windows_get_speaker_embeddings(engine: STTEngine, weights: WeightStore) -> None:
    encoder = BandsEngine()
    plain, labelled = decode(engine, [PLAIN, LABELLED], lambda: encoder, BatchLimit())
    assert isinstance(plain, Transcript) and isinstance(labelled, Transcript)
    assert plain.voices is None
    assert labelled.voices is not None and labelled.voices.shape == (2, 256)


def test_a_missing_encoder_fails_only_requests_with_voice_windows(engine: STTEngine) -> None:
    def missing() -> SpeakerEncoder:
        raise WeightsMissing("no weights")

    plain, labelled = decode(engine, [PLAIN, LABELLED], missing, BatchLimit())
    assert isinstance(plain, Transcript)
    assert isinstance(labelled, WeightsMissing)
