"""Whisper on transformers: with random weights, and against CTranslate2 with real ones."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.load import load_yaml
from configs.schema.models.stt import TransformersWhisperConfig
from models.audio import Pcm
from models.errors import EngineError, EngineLost, UnsupportedLanguage, WeightsMissing
from models.memory import LoadedNetwork
from models.registry import STT, load_model
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.stt.whisper.job import DecodingJob
from models.weights.store import WeightStore
from tests.models.sounds import speak
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
transformers = pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)
pytest.importorskip("torchaudio", reason=LIBRARIES, exc_type=ImportError)

from models.stt.whisper.engine import WhisperEngine  # noqa: E402 they import the libraries
from models.stt.whisper_cuda.log_mel import LogMel  # noqa: E402
from models.stt.whisper_transformers.engine import TransformersWhisperEngine  # noqa: E402
from models.stt.whisper_transformers.network import likeliest_path  # noqa: E402
from tests.models.stt.whisper_transformers.published_whisper import convert  # noqa: E402
from tests.models.stt.whisper_transformers.tiny_whisper import LANGUAGES, make_tiny_whisper  # noqa: E402

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps under a tree."
PUNCTUATION = str.maketrans("", "", ",.")  # float32 and int8 differ in a comma
NO_RETRIES = {"retry_logprob": -50.0, "compression_ratio_threshold": 99.0}


def noise(seconds: float, seed: int = 0) -> Pcm:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * STT_SAMPLE_RATE))
    return (0.1 * samples).astype(np.float32)


def config(**changes: object) -> TransformersWhisperConfig:
    shipped = load_yaml(TransformersWhisperConfig, "stt/whisper_turbo")
    return shipped.model_copy(update={"device": "cpu", "dtype": "float32", **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whisper")
    make_tiny_whisper(path)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[TransformersWhisperEngine]:
    made = TransformersWhisperEngine(config(**NO_RETRIES), OneFolder(folder))
    yield made
    made.close()


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (2, 2), (7, 5), (20, 300)])
def test_words_are_placed_as_by_the_library(shape: tuple[int, int]) -> None:
    library = transformers.models.whisper.generation_whisper._dynamic_time_warping
    random = np.random.default_rng(0)
    for costs in (random.standard_normal(shape), random.integers(0, 3, shape).astype(float)):
        path = zip(*(places.tolist() for places in library(costs)), strict=True)
        assert likeliest_path(costs) == list(path)


@pytest.mark.parametrize("mels", [80, 128])
def test_log_mel_features_match_the_transformers_library(mels: int) -> None:
    sounds = [noise(1.0), 0.001 * noise(2.5, 1), noise(30.0, 2)]
    expected = transformers.WhisperFeatureExtractor(feature_size=mels)(
        sounds, sampling_rate=STT_SAMPLE_RATE, return_tensors="np"
    ).input_features
    ours = LogMel(mels, "cpu")(sounds).numpy()
    assert ours.shape == expected.shape == (3, mels, 3000)
    assert np.abs(ours - expected).max() < 1e-4


def test_decoded_tokens_and_their_log_probability_match_the_transformers_library(
    engine: TransformersWhisperEngine,
) -> None:
    model = engine._model
    states = model.encode([noise(2.0)])[0]
    job = DecodingJob(TranscriptionRequest(noise(2.0)), states.cpu().numpy(), 0.0, "en")
    tokenizer = engine._tokenizer(job)
    prompt = [model._sot, model._languages["<|en|>"], tokenizer.transcribe]
    prompt.append(tokenizer.no_timestamps)
    [made] = model.generate(
        engine._view([states]),
        [prompt],
        is_wanted=lambda: True,
        beam_size=1,
        max_length=16,
        suppress_tokens=(),
    )
    text = made.sequences_ids[0]
    whole = torch.tensor([[*prompt, *text]])
    with torch.inference_mode():
        logits = model._network(encoder_outputs=(states[None],), decoder_input_ids=whole).logits
        scores = logits[0, len(prompt) - 1 :].float()
        scores[:, model._first_time :] = -torch.inf
        scores[0, model._no_beginnings] = -torch.inf
        shares = scores.log_softmax(dim=-1)
    assert shares[: len(text)].argmax(dim=-1).tolist() == text
    total = shares[range(len(text)), text].sum()
    if len(text) < 16 // 2:  # it ended with the end token
        total += shares[len(text), model._end]
    assert made.scores[0] * len(text) == pytest.approx(float(total), abs=1e-3)


def test_a_batch_gives_the_texts_of_single_requests(engine: TransformersWhisperEngine) -> None:
    requests = [
        TranscriptionRequest(noise(seconds, seed)) for seed, seconds in enumerate((0.5, 3.0, 1.2))
    ]
    together = engine.transcribe([*requests, TranscriptionRequest(np.zeros(8000, np.float32))])
    assert [engine.transcribe([request])[0] for request in requests] == together[:3]
    assert together[3] == Transcript("en", 0.0)


def test_detection_is_limited_to_the_allowed_languages(engine: TransformersWhisperEngine) -> None:
    assert set(engine.capabilities.languages) == set(LANGUAGES)
    [free] = engine.transcribe([TranscriptionRequest(noise(2.0))])
    others = tuple(code for code in LANGUAGES if code != free.language)
    [bound] = engine.transcribe([TranscriptionRequest(noise(2.0), languages=others)])
    assert bound.language in others
    assert 0 < bound.language_probability <= free.language_probability
    with pytest.raises(UnsupportedLanguage, match="'xx'"):
        engine.transcribe([TranscriptionRequest(noise(1.0), language="xx")])


def test_greedy_and_beam_search_return_scored_tokens(engine: TransformersWhisperEngine) -> None:
    model = engine._model
    states = engine._view(model.encode([noise(2.0, 5)]))
    prompt = [model._sot, model._languages["<|en|>"]]
    limits: dict[str, Any] = {"max_length": 8, "suppress_tokens": (), "is_wanted": lambda: True}
    made = [model.generate(states, [prompt], beam_size=beams, **limits)[0] for beams in (1, 4)]
    assert all(one.sequences_ids[0] and one.scores[0] < 0 for one in made)
    for one in made:  # without the token for none, a text begins with a time
        first, *rest = one.sequences_ids[0]
        assert first >= model._first_time > min(rest)


def test_a_closed_engine_raises_and_frees_its_weights(folder: Path) -> None:
    made = TransformersWhisperEngine(config(), OneFolder(folder))
    network = weakref.ref(made._model._network)
    made.close()
    with pytest.raises(EngineLost):
        made.transcribe([TranscriptionRequest(noise(1.0))])
    assert network() is None


def test_times_of_words_while_the_engine_is_being_closed_raise_engine_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = TransformersWhisperEngine(config(), OneFolder(folder))
    model = closing._model
    states = closing._view(model.encode([noise(2.0)]))
    align = partial(model.align, states, [model._sot], [[1, 2]], 200, median_filter_width=7)
    assert len(align()[0].text_token_probs) == 2
    with monkeypatch.context() as patch:
        patch.setattr(LoadedNetwork, "close", lambda _: None)  # not done yet
        closing.close()
    with pytest.raises(EngineLost):
        align()
    closing.close()


def test_the_shipped_configuration_loads_and_its_model_info_names_the_device(folder: Path) -> None:
    engine, info = load_model(STT, "stt/whisper_turbo", OneFolder(folder))
    assert isinstance(engine, TransformersWhisperEngine)
    assert info.engine == "whisper_transformers" and set(info.languages) == set(LANGUAGES)
    assert info.device == ("cuda" if torch.cuda.is_available() else "cpu")
    engine.close()


def test_a_folder_without_a_model_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    with pytest.raises(EngineError, match="cannot be loaded"):
        TransformersWhisperEngine(config(), OneFolder(tmp_path))


@pytest.mark.weights
def test_real_weights_match_the_ctranslate2_engine(weights: WeightStore, tmp_path: Path) -> None:
    try:
        source = weights.folder("whisper-base")
        speech = speak(TEXT, weights)
    except WeightsMissing as error:
        pytest.skip(str(error))
    convert(source, tmp_path)
    made = TransformersWhisperEngine(config(), OneFolder(tmp_path))
    request = TranscriptionRequest(speech, options=RecognitionOptions(words=True))
    [ours] = made.transcribe([request])
    published, _ = load_model(STT, "stt/whisper_base", weights)
    assert isinstance(published, WhisperEngine)
    [theirs] = published.transcribe([request])
    assert ours.language == theirs.language == "en"
    texts = [part.segments[0].text.translate(PUNCTUATION) for part in (ours, theirs)]
    assert texts[0] == texts[1]
    assert ours.segments[0].avg_logprob == pytest.approx(theirs.segments[0].avg_logprob, abs=0.1)
    assert ours.segments[0].no_speech_prob == pytest.approx(
        theirs.segments[0].no_speech_prob, abs=0.1
    )
    pairs = list(zip(ours.segments[0].words, theirs.segments[0].words, strict=True))
    heard = [[word.word.translate(PUNCTUATION) for word in pair] for pair in pairs]
    assert all(ours_word == theirs_word for ours_word, theirs_word in heard)
    assert np.median([abs(one.start - other.start) for one, other in pairs]) <= 0.1
    [timed], [other] = (
        engine._decode_once([DecodingJob(request, times=True)]) for engine in (made, published)
    )
    texts = [part.segments[0].text.translate(PUNCTUATION) for part in (timed, other)]
    assert texts[0] == texts[1]
    german = replace(request, languages=("de", "fr"))
    assert made.transcribe([german])[0].language in ("de", "fr")
    made.close()
