"""Models that `pull` knows by their files, each with a configuration that its engine reads."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.settings import own_catalogue
from models.registry import CHAT, STT
from models.weights.pull import PullOptions, pull
from models.weights.store import load_own_catalogue, own_model
from tests.models.weights.local_hub import LocalHub, serving, use_hub

TRANSFORMERS = {
    "config.json": b"{}",
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": b"\x80\x02\0\0\0\0\0\0{" + bytes(700),
    "pytorch_model.bin": b"PK\x03\x04",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path / "data"))
    with serving() as found:
        use_hub(found, monkeypatch)
        yield found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def pulled(root: Path, reference: str, options: PullOptions | None = None) -> str:
    return pull(root, reference, options or PullOptions(licence="MIT"), lambda line: None)[0]


def refused(root: Path, reference: str) -> str:
    with pytest.raises(ValueError) as caught:
        pulled(root, reference)
    assert not own_catalogue().exists() and not list(root.glob("blobs/*"))
    return str(caught.value)


PARAKEET = {
    "encoder-model.onnx": b"\x08\x08onnx",
    "encoder-model.onnx.data": bytes(99),
    "encoder-model.int8.onnx": b"\x08\x08int8",
    "decoder_joint-model.onnx": b"\x08\x08onnx",
    "decoder_joint-model.int8.onnx": b"\x08\x08int8",
    "nemo128.onnx": b"\x08\x08mel",
    "vocab.txt": b"a 0\n<blk> 1\n",
    "config.json": b'{"model_type": "nemo-conformer-tdt", "features_size": 128}',
}
MOONSHINE = {
    "onnx/encoder_model.onnx": b"\x08\x08onnx",
    "onnx/decoder_model_merged.onnx": b"\x08\x08onnx",
    "onnx/encoder_model_int8.onnx": b"\x08\x08int8",
    "onnx/decoder_model_merged_int8.onnx": b"\x08\x08int8",
    "onnx/decoder_model.onnx": b"\x08\x08onnx",
    "tokenizer.json": b"{}",
    "config.json": b"{}",
}


def test_a_recogniser_of_nemo_is_taken_in_int8(root: Path, hub: LocalHub) -> None:
    hub.files = PARAKEET
    asked = PullOptions(licence="CC-BY-4.0", languages=("de", "en"))
    name = pulled(root, "hf:a/parakeet-tdt-0.6b-v3-onnx", asked)
    files = load_own_catalogue().artefacts[name].files
    assert set(files) == {
        *("encoder-model.int8.onnx", "decoder_joint-model.int8.onnx", "vocab.txt", "config.json")
    }
    config = STT.read(str(own_model(name)))
    assert (config.engine, config.architecture) == ("onnx_asr", "nemo-conformer-tdt")
    assert (config.quantization, config.languages) == ("int8", ("de", "en"))


@pytest.mark.parametrize("about", [b"{}", b'{"model_type": "whisper-ort"}', b"[1]", b"{"])
def test_a_recogniser_of_an_architecture_that_is_not_read_is_refused(
    root: Path, hub: LocalHub, about: bytes
) -> None:
    hub.files = PARAKEET | {"config.json": about}
    assert "architecture" in refused(root, "hf:a/b")


def test_of_moonshine_in_several_precisions_one_has_to_be_chosen(root: Path, hub: LocalHub) -> None:
    hub.files = MOONSHINE
    assert "choose one of 2 models by --include" in refused(root, "hf:a/moonshine-base-ONNX")
    asked = PullOptions(licence="MIT", include=("*_int8.onnx", "*.json"), languages=("es",))
    name = pulled(root, "hf:a/moonshine-base-es-ONNX", asked)
    [source] = load_own_catalogue().artefacts[name].sources
    assert source.files == {
        "encoder_model.onnx": "onnx/encoder_model_int8.onnx",
        "decoder_model_merged.onnx": "onnx/decoder_model_merged_int8.onnx",
        "tokenizer.json": "tokenizer.json",
    }
    config = STT.read(str(own_model(name)))
    assert (config.architecture, config.languages) == ("moonshine", ("es",))


def test_models_of_the_transformers_library_are_known_by_their_config(
    root: Path, hub: LocalHub
) -> None:
    hub.files = TRANSFORMERS | {"config.json": b'{"model_type": "whisper"}'}
    name = pulled(root, "hf:distil-whisper/distil-large-v3.5")
    heard = STT.read(str(own_model(name)))
    assert (heard.engine, heard.dtype, heard.translates) == (
        *("whisper_transformers", "float16", False),
    )
    assert heard.languages == ("en",)
    about = {"architectures": ["Qwen3ForCausalLM"], "max_position_embeddings": 40960}
    template = {"chat_template": "{{ '<tool_call>' }}"}
    hub.files = TRANSFORMERS | {
        "config.json": json.dumps(about).encode(),
        "tokenizer_config.json": json.dumps(template).encode(),
    }
    name = pulled(root, "hf:Some.One/Chat-4B")
    chat = CHAT.read(str(own_model(name)))
    assert (chat.engine, chat.context_tokens, chat.cache_tokens) == ("transformers", 8192, 32768)
    assert (chat.tools, chat.quantization) == ("hermes", "nf4")
