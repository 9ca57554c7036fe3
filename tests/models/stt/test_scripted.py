"""The scripted speech-to-text engine, which has no weights."""

import numpy as np
import pytest

from models.errors import UnsupportedLanguage
from models.registry import STT, load_model
from models.stt.base import STTEngine, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from tests.engines import SCRIPTED


@pytest.fixture
def engine(weights: WeightStore) -> STTEngine:
    return load_model(STT, SCRIPTED, weights)[0]


def test_silence_gives_empty_text(engine: STTEngine) -> None:
    (transcript,) = engine.transcribe([TranscriptionRequest(np.zeros(16_000, np.float32))])
    assert transcript.segments == ()


def test_audio_is_transcribed_as_the_script_with_word_times(engine: STTEngine) -> None:
    request = TranscriptionRequest(
        np.ones(16_000, np.float32), language="de", options=RecognitionOptions(words=True)
    )
    (transcript,) = engine.transcribe([request])
    (segment,) = transcript.segments
    assert transcript.language == "de"
    assert segment.text == " ".join(word.word for word in segment.words)
    assert segment.words[-1].end == 1.0


def test_an_unknown_language_is_refused(engine: STTEngine) -> None:
    with pytest.raises(UnsupportedLanguage):
        engine.transcribe([TranscriptionRequest(np.ones(9, np.float32), language="xx")])
