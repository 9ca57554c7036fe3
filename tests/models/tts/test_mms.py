"""MMS with random weights: how synthesis behaves, not the quality of the speech."""

import json
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.models.tts import MmsConfig
from models.errors import EngineError, EngineLost, UnknownVoice, UnsupportedLanguage
from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.store import load_catalogue
from tests.models.tts.loaded import speech
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
transformers = pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)

from models.tts import mms  # noqa: E402 it imports the libraries
from models.tts.mms import MmsEngine  # noqa: E402

TEXT = "the river runs to the sea"


def make_tiny_vits(folder: Path, **tokenizer: bool) -> None:
    """Writes the files of a model repository."""
    letters = ["<pad>", *" abcdefghijklmnopqrstuvwxyz'-", "<unk>"]
    (folder / "vocab.json").write_text(json.dumps({one: at for at, one in enumerate(letters)}))
    transformers.VitsTokenizer(
        folder / "vocab.json", phonemize=False, is_uroman=tokenizer.get("is_uroman", False)
    ).save_pretrained(folder)
    torch.manual_seed(0)
    transformers.VitsModel(
        transformers.VitsConfig(
            vocab_size=len(letters),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=16,
            flow_size=16,
            spectrogram_bins=9,
            prior_encoder_num_flows=2,
            prior_encoder_num_wavenet_layers=1,
            posterior_encoder_num_wavenet_layers=1,
            duration_predictor_num_flows=2,
            duration_predictor_filter_channels=16,
            depth_separable_num_layers=1,
            upsample_initial_channel=16,
            upsample_rates=[8, 8, 4],
            upsample_kernel_sizes=[16, 16, 8],
            resblock_kernel_sizes=[3],
            resblock_dilation_sizes=[[1]],
            use_stochastic_duration_prediction=False,
        )
    ).save_pretrained(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mms")
    make_tiny_vits(path)
    return path


@pytest.fixture(scope="module")
def config() -> MmsConfig:
    shipped = load_yaml(MmsConfig, "tts/mms")
    return shipped.model_copy(update={"device": "cpu", "voices": shipped.voices[:2]})


@pytest.fixture(scope="module")
def engine(config: MmsConfig, folder: Path) -> Iterator[MmsEngine]:
    made = MmsEngine(config, OneFolder(folder))
    yield made
    made.close()


def asked(text: str = TEXT) -> SynthesisRequest:
    return SynthesisRequest(text, "eng", "en")


def test_speech_is_mono_in_range_with_a_time_for_each_word(engine: MmsEngine) -> None:
    [chunk] = engine.synthesize(replace(asked(), timings=True))
    assert chunk.sample_rate == engine.capabilities.sample_rate == 16_000
    assert chunk.pcm.dtype == np.float32 and chunk.pcm.ndim == 1
    assert 0 < np.abs(chunk.pcm).max() <= 1.0
    said = [TEXT[word.text_start : word.text_end] for word in chunk.words]
    assert said == TEXT.split()


def test_the_engine_declares_where_it_computes(
    config: MmsConfig, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs load models of the CPU again, for a lower priority, and share those of a GPU."""
    network = mms._Network(folder, config)
    assert network.device == "cpu"
    monkeypatch.setattr(network, "device", "cuda")
    monkeypatch.setattr(mms, "_Network", lambda *_: network)
    assert MmsEngine(config, OneFolder(folder)).capabilities.device == "cuda"


def test_speed_and_stability_apply_to_their_request_only(engine: MmsEngine) -> None:
    settings = engine._networks["eng"]._model.config  # type: ignore[index]
    slow, fast = (len(speech(engine, replace(asked(), speed=s))) for s in (0.5, 2.0))
    assert slow > 1.5 * fast
    torch.manual_seed(1)
    calm = speech(engine, replace(asked(), stability=1.5))
    torch.manual_seed(1)
    lively = speech(engine, replace(asked(), stability=0.6))
    assert len(calm) != len(lively) or not np.array_equal(calm, lively)
    assert settings.speaking_rate == 1.0


def test_text_without_letters_of_the_language_gives_no_audio(engine: MmsEngine) -> None:
    for text in ("", " ", "?!", "🙂", "日本"):
        assert not len(speech(engine, asked(text)))


def test_concurrent_requests_do_not_mix(engine: MmsEngine) -> None:
    requests = [asked(), replace(asked(), speed=2.0)]
    alone = [len(speech(engine, request)) for request in requests]
    with ThreadPoolExecutor(2) as threads:
        together = list(threads.map(lambda request: len(speech(engine, request)), requests))
    assert together == pytest.approx(alone, rel=0.1)


def test_a_very_long_text_is_synthesised_in_parts(
    engine: MmsEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(speech(engine, asked()))
    monkeypatch.setattr(mms, "MOST_SYMBOLS", 20)
    assert len(speech(engine, asked())) == pytest.approx(whole, rel=0.3)


def test_unsupported_requests_are_refused_before_any_audio(engine: MmsEngine) -> None:
    with pytest.raises(UnknownVoice, match="unknown"):
        next(engine.synthesize(replace(asked(), voice="unknown")))
    with pytest.raises(UnsupportedLanguage, match="'de'"):
        next(engine.synthesize(replace(asked(), language="de")))


def test_a_voice_that_needs_romanised_text_is_refused(config: MmsConfig, tmp_path: Path) -> None:
    make_tiny_vits(tmp_path, is_uroman=True)
    with pytest.raises(EngineError, match="package"):
        MmsEngine(config, OneFolder(tmp_path))


def test_a_closed_engine_raises_and_frees_its_weights(config: MmsConfig, folder: Path) -> None:
    made = MmsEngine(config, OneFolder(folder))
    network = weakref.ref(made._networks["eng"]._model)  # type: ignore[index]
    made.close()
    with pytest.raises(EngineLost):
        next(made.synthesize(asked()))
    assert network() is None


def test_the_shipped_configuration_loads_and_is_in_no_profile(folder: Path) -> None:
    engine, info = load_model(TTS, "tts/mms", OneFolder(folder))
    assert (info.engine, info.tier, info.sample_rate) == ("mms", "fast", 16_000)
    assert info.languages == ("bn", "en", "gu", "hi", "kn", "ml", "mr", "pa", "ta", "te")
    for voice in load_yaml(MmsConfig, "tts/mms").voices:
        artefact = load_catalogue().artefacts[voice.weights]
        assert "NC" in artefact.licence and not artefact.needed_by("gpu")
    assert isinstance(engine, MmsEngine)
    engine.close()
