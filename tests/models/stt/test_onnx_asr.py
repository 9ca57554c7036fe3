"""Moonshine with its real weights, and the networks of NeMo with small random ones: those of
Parakeet are larger than any package of PyPI."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from configs.schema.catalogue import Catalogue
from models.audio import Pcm
from models.errors import InvalidEngineRequest, WeightsMissing
from models.registry import STT, load_model
from models.stt.base import STT_SAMPLE_RATE, STTEngine, TranscriptionRequest
from models.stt.moonshine import Moonshine
from models.stt.options import RecognitionOptions
from models.weights.sources import pinned_file
from models.weights.store import WeightStore
from tests.models.configured import described
from tests.models.sounds import speak
from tests.models.stt import test_contract as contract

SENTENCE = "The river runs to the sea."
VOCABULARY = ("<unk>", "\u2581the", "\u2581ri", "ver", ".", "\u2581sea", "<|en|>", "<blk>")
WIDTH, STATES, DURATIONS = 16, 8, 5


@pytest.fixture(scope="module")
def speech(weights: WeightStore) -> Pcm:
    return speak(SENTENCE, weights)


@pytest.fixture(scope="module")
def moonshine() -> STTEngine:
    return described(STT, "moonshine")[0]


def heard(engine: STTEngine, pcm: Pcm, **options: Any) -> Any:
    return engine.transcribe([TranscriptionRequest(pcm, **options)])[0]


@pytest.mark.weights
def test_moonshine_hears_a_sentence_and_estimates_the_times_of_its_words(
    moonshine: STTEngine, speech: Pcm
) -> None:
    silence = np.zeros(STT_SAMPLE_RATE, np.float32)
    pcm = np.concatenate([silence, speech])
    spans = ((len(silence), len(pcm)),)
    transcript = heard(moonshine, pcm, speech=spans)
    assert transcript.language == "en" and transcript.candidates == ()
    [segment] = transcript.segments
    assert segment.text.lower() == SENTENCE.lower()
    assert segment.start == 1.0 and not moonshine.capabilities.word_times
    assert [word.word for word in segment.words] == segment.text.split()
    assert all(0.2 < word.confidence <= 1 for word in segment.words)
    assert heard(moonshine, speech).segments[0].words == ()  # without a request for words


@pytest.mark.weights
@pytest.mark.parametrize("samples", [1, 320, 1600, 3199])
def test_moonshine_hears_nothing_in_a_click(moonshine: STTEngine, samples: int) -> None:
    click = np.random.default_rng(1).normal(0, 1e-3, samples).astype(np.float32)
    assert heard(moonshine, click).segments == ()


def nemo_graphs(kind: str) -> dict[str, onnx.ModelProto]:
    """Small networks with the inputs and outputs of NeMo's exports, by file name."""
    rng = np.random.default_rng(7)
    size = len(VOCABULARY)

    def weight(*shape: int) -> Any:
        return rng.normal(0, 1, shape).astype(np.float32)

    def graph(
        nodes: list[Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any], **weights: Any
    ) -> onnx.ModelProto:
        given, found = (
            [
                helper.make_tensor_value_info(name, kind, shape)
                for name, (kind, shape) in one.items()
            ]
            for one in (inputs, outputs)
        )
        tensors = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
        made = helper.make_graph(nodes, "small", given, found, tensors)
        return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    sound = {
        "audio_signal": (TensorProto.FLOAT, ["b", 128, "t"]),
        "length": (TensorProto.INT64, ["b"]),
    }
    step: dict[str, Any] = {"kernel_shape": [8], "strides": [8], "auto_pad": "SAME_UPPER"}
    if kind == "ctc":
        nodes = [
            helper.make_node("Conv", ["audio_signal", "w"], ["states"], **step),
            helper.make_node("Transpose", ["states"], ["raw"], perm=[0, 2, 1]),
            helper.make_node("LogSoftmax", ["raw"], ["logprobs"]),
        ]
        made = graph(
            nodes,
            sound,
            {"logprobs": (TensorProto.FLOAT, ["b", "n", size])},
            w=weight(size, 128, 8),
        )
        return {"model.onnx": made}
    encoder = graph(
        [
            helper.make_node("Conv", ["audio_signal", "w"], ["outputs"], **step),
            helper.make_node("Add", ["length", "seven"], ["more"]),
            helper.make_node("Div", ["more", "eight"], ["encoded_lengths"]),
        ],
        sound,
        {
            "outputs": (TensorProto.FLOAT, ["b", WIDTH, "n"]),
            "encoded_lengths": (TensorProto.INT64, ["b"]),
        },
        w=weight(WIDTH, 128, 8),
        seven=np.int64(7),
        eight=np.int64(8),
    )
    state = (TensorProto.FLOAT, [2, 1, STATES])
    wide = size + DURATIONS * (kind == "tdt")
    decoder = graph(
        [
            helper.make_node("Squeeze", ["encoder_outputs", "two"], ["frame"]),
            helper.make_node("MatMul", ["frame", "joint"], ["acoustic"]),
            helper.make_node("Gather", ["embedding", "targets"], ["embedded"]),
            helper.make_node("Squeeze", ["embedded", "one"], ["linguistic"]),
            helper.make_node("Add", ["acoustic", "linguistic"], ["sum"]),
            helper.make_node("Unsqueeze", ["sum", "ends"], ["outputs"]),
            helper.make_node("Add", ["input_states_1", "input_states_2"], ["output_states_1"]),
            helper.make_node("Identity", ["input_states_2"], ["output_states_2"]),
        ],
        {
            "encoder_outputs": (TensorProto.FLOAT, ["b", WIDTH, 1]),
            "targets": (TensorProto.INT32, ["b", 1]),
            "target_length": (TensorProto.INT32, ["b"]),
            "input_states_1": state,
            "input_states_2": state,
        },
        {
            "outputs": (TensorProto.FLOAT, ["b", 1, 1, wide]),
            "output_states_1": state,
            "output_states_2": state,
        },
        joint=weight(WIDTH, wide),
        embedding=weight(size, wide),
        one=np.array([1]),
        two=np.array([2]),
        ends=np.array([1, 2]),
    )
    return {"encoder-model.onnx": encoder, "decoder_joint-model.onnx": decoder}


@pytest.fixture(scope="module", params=["tdt", "rnnt", "ctc"])
def nemo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The engine and its description, of files as the hub has them, in int8 by their names."""
    folder = tmp_path_factory.mktemp("nemo")
    for name, model in nemo_graphs(request.param).items():
        onnx.save(model, folder / name.replace(".onnx", ".int8.onnx"))
    lines = (f"{token} {number}\n" for number, token in enumerate(VOCABULARY))
    (folder / "vocab.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "config.json").write_text('{"features_size": 128, "subsampling_factor": 8}')
    files = {path.name: pinned_file(path) for path in folder.iterdir()}
    artefact = {
        "description": "small",
        "licence": "none",
        "homepage": "none",
        "required": False,
        "files": {name: one.model_dump() for name, one in files.items()},
        "sources": [{"kind": "file", "files": {name: str(folder / name) for name in files}}],
    }
    catalogue = Catalogue.model_validate({"artefacts": {"small": artefact}})
    store = WeightStore(tmp_path_factory.mktemp("cache"), catalogue)
    stored = store.artefact_path("small")
    stored.parent.mkdir()
    folder.rename(stored)
    config = folder.with_suffix(".yaml")
    config.write_text(
        yaml.safe_dump(
            {
                "engine": "onnx_asr",
                "id": "svc/small",
                "owned_by": "us",
                "created": 0,
                "artefact": "small",
                "architecture": f"nemo-conformer-{request.param}",
                "quantization": "int8",
                "languages": ["en", "de", "fr"],
            }
        )
    )
    return load_model(STT, str(config), store)


def test_a_network_of_nemo_keeps_the_contract(nemo: Any, speech: Pcm) -> None:
    contract.test_the_model_info_matches_the_declared_capabilities(nemo)
    contract.test_speech_is_transcribed_with_word_times_inside_the_audio(nemo, speech)
    contract.test_silence_and_empty_audio_have_no_segments(nemo)
    contract.test_a_batch_is_transcribed_in_its_order(nemo, speech)
    contract.test_an_unknown_language_is_refused(nemo, speech)


def test_the_times_of_words_are_those_of_their_tokens(nemo: Any, speech: Pcm) -> None:
    options = RecognitionOptions(words=True)
    [segment] = heard(nemo[0], speech, language="en", options=options).segments
    assert nemo[0].capabilities.word_times and segment.avg_logprob < 0
    assert len(segment.words) > 1 and "<" not in segment.text
    steps = [word.start / 0.08 for word in segment.words]
    assert steps == pytest.approx([round(step) for step in steps], abs=0.13)
    assert all(word.end - word.start < 2 for word in segment.words)


def test_a_model_of_several_languages_leaves_the_choice_to_the_text(nemo: Any, speech: Pcm) -> None:
    unknown = heard(nemo[0], speech)
    assert unknown.candidates == ("en", "de", "fr") and unknown.language_probability == 0.5
    limited = heard(nemo[0], speech, languages=("de", "fr"), prior={"fr": 9.0})
    assert limited.candidates == ("de", "fr") and limited.language == "fr"
    assert heard(nemo[0], speech, language="de").candidates == ()


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsMissing, match="reads encoder_model.onnx, decoder_model_merged"):
        Moonshine({"tokenizer.json": tmp_path}, threads=1, max_tokens_per_s=6)


def test_what_the_model_cannot_do_is_refused(nemo: Any, speech: Pcm) -> None:
    with pytest.raises(InvalidEngineRequest, match="does not translate"):
        heard(nemo[0], speech, options=RecognitionOptions(translate=True))
    with pytest.raises(InvalidEngineRequest, match="at most 30 s"):
        heard(nemo[0], np.ones(31 * STT_SAMPLE_RATE, np.float32))
