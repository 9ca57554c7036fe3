"""Whisper on CTranslate2 in batches, on a CPU, against the engine for a CPU."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ctranslate2
import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.models.stt import CudaWhisperConfig
from models.errors import EngineError, EngineLost
from models.stt.base import STT_SAMPLE_RATE, DecodingBudget, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.stt.whisper.engine import WhisperEngine
from models.weights.store import WeightStore
from tests.models.sounds import speak
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("torchaudio", reason=LIBRARIES, exc_type=ImportError)

from models.stt.whisper_cuda.engine import CTranslateWhisper, CudaWhisperEngine  # noqa: E402

WORDS = RecognitionOptions(words=True)
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Good morning. We leave at half past nine.",
)


def config(**changes: object) -> CudaWhisperConfig:
    return load_yaml(CudaWhisperConfig, "stt/whisper_turbo_cuda").model_copy(update=changes)


@pytest.fixture(scope="module")
def batched(folder: Path) -> Iterator[CudaWhisperEngine]:
    made = CudaWhisperEngine(config(device="cpu", compute_type="float32"), OneFolder(folder))
    yield made
    made.close()


@pytest.mark.weights
def test_a_batch_is_heard_like_by_the_engine_for_a_cpu(
    batched: CudaWhisperEngine, engine: WhisperEngine, weights: WeightStore
) -> None:
    requests = [TranscriptionRequest(speak(text, weights), options=WORDS) for text in TEXTS]
    silence = TranscriptionRequest(np.zeros(STT_SAMPLE_RATE, np.float32))
    together = batched.transcribe([*requests, silence])
    assert not together[2].segments
    for request, ours in zip(requests, together, strict=False):
        [alone], [theirs] = batched.transcribe([request]), engine.transcribe([request])
        assert ours.language == theirs.language == "en"
        [segment], [single], [other] = (made.segments for made in (ours, alone, theirs))
        assert segment.text == single.text
        ours_said, theirs_said = (
            re.findall(r"\w+", made.text.casefold()) for made in (segment, other)
        )
        assert ours_said == theirs_said
        starts = [[word.start for word in made.words] for made in (segment, single, other)]
        assert np.allclose(starts[0], starts[1], atol=0.021)  # a state
        assert np.median(np.abs(np.subtract(starts[0], starts[2]))) <= 0.1
    assert batched.capabilities.max_batch_size == 16


@pytest.mark.weights
def test_abandoned_requests_have_no_text_and_a_closed_engine_is_lost(
    batched: CudaWhisperEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([True, True])  # wanted until it is encoded
    budget = DecodingBudget(is_wanted=lambda: next(answers, False))
    noise = np.random.default_rng(0).normal(0, 0.1, STT_SAMPLE_RATE).astype(np.float32)
    request = TranscriptionRequest(noise, "en")
    [transcript] = batched.transcribe([replace(request, budget=budget)])
    assert not transcript.segments
    network = CTranslateWhisper(folder, config(device="cpu", compute_type="float32"))
    network.close()
    monkeypatch.setattr(batched, "_model", network)
    with pytest.raises(EngineLost):
        batched.transcribe([request])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_shipped_configuration_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="CTranslate2 finds no NVIDIA GPU with a driver"):
        CudaWhisperEngine(config(), OneFolder(tmp_path))


def test_a_folder_without_a_model_and_an_unknown_precision_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="cannot be loaded"):
        CTranslateWhisper(tmp_path, config(device="cpu"))
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr("models.stt.whisper_cuda.engine.load_cublas", lambda: None)
    with pytest.raises(EngineError, match="cannot be loaded: CUDA failed|cannot be loaded: Unable"):
        CTranslateWhisper(tmp_path, config())
