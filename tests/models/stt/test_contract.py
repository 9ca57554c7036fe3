"""The contract of every speech-to-text engine, with each configuration of `configs/stt`."""

import numpy as np
import pytest

from models.audio import Pcm
from models.base import ModelInfo
from models.errors import UnsupportedLanguage
from models.registry import STT
from models.stt.base import STT_SAMPLE_RATE, STTEngine, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.weights.store import WeightStore
from tests.models.configured import configurations, described
from tests.models.sounds import speak

Model = tuple[STTEngine, ModelInfo]


@pytest.fixture(scope="module", params=configurations(STT))
def model(request: pytest.FixtureRequest) -> Model:
    return described(STT, request.param)


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> Pcm:
    return speak("The river runs to the sea.", weights)


def test_the_model_info_matches_the_declared_capabilities(model: Model) -> None:
    declared = model[0].capabilities
    assert model[1].languages == declared.languages and "en" in declared.languages
    assert model[1].device == declared.device
    assert declared.max_concurrency >= 1 and declared.max_batch_size >= 1


def test_speech_is_transcribed_with_word_times_inside_the_audio(model: Model, speech: Pcm) -> None:
    options = RecognitionOptions(words=True)
    (transcript,) = model[0].transcribe([TranscriptionRequest(speech, "en", options=options)])
    assert transcript.language == "en"
    words = [word for segment in transcript.segments for word in segment.words]
    assert " ".join(word.word for word in words) == " ".join(s.text for s in transcript.segments)
    times = [time for word in words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert 0 <= times[0] and times[-1] <= len(speech) / STT_SAMPLE_RATE + 0.01
    assert all(0 <= word.confidence <= 1 for word in words)


def test_silence_and_empty_audio_have_no_segments(model: Model) -> None:
    for samples in (0, STT_SAMPLE_RATE):
        request = TranscriptionRequest(np.zeros(samples, np.float32), "en")
        assert model[0].transcribe([request])[0].segments == ()


def test_a_batch_is_transcribed_in_its_order(model: Model, speech: Pcm) -> None:
    silence = np.zeros(STT_SAMPLE_RATE, np.float32)
    batch = [TranscriptionRequest(pcm, "en") for pcm in (silence, speech, silence)]
    assert [bool(one.segments) for one in model[0].transcribe(batch)] == [False, True, False]
    assert model[0].transcribe([]) == []


def test_an_unknown_language_is_refused(model: Model, speech: Pcm) -> None:
    for request in (
        TranscriptionRequest(speech, "xx"),
        TranscriptionRequest(speech, languages=("en", "xx")),
    ):
        with pytest.raises(UnsupportedLanguage):
            model[0].transcribe([request])
