"""GGUF files by path: what their headers say, and the context that fits in memory."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema.models.llm import LlamaCppConfig
from models.errors import EngineError
from models.llm import gguf as module
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest, SamplingOptions
from models.llm.gguf import GgufModel, fitted, read_gguf
from models.llm.llama_cpp import LlamaCppEngine, file_of
from models.registry import CHAT, artefacts_of, files_of, load_model
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.gguf_files import write_gguf
from tests.models.llm.llama_cpp.smollm import SMOLLM

YAML = """
engine: llama_cpp
id: svc/mine
owned_by: me
created: 0
languages: [en]
weights: file://{path}
unverified: true
threads: 1
"""
TOKEN_BYTES = 4 * 2 * (8 + 8) * 2  # of the small Llama's cache


def configured(path: str, **options: Any) -> LlamaCppConfig:
    given = {"weights": path, "unverified": True, "context_tokens": 0, "parallel": 0, **options}
    return LlamaCppConfig.model_validate(SMOLLM.model_dump() | given)


def load(path: str, tmp_path: Path, **options: Any) -> LlamaCppEngine:
    return LlamaCppEngine(configured(path, **options), WeightStore(tmp_path))


def read(path: str) -> GgufModel:
    import xllamacpp

    return read_gguf(xllamacpp.xllamacpp.__file__, path)


def test_the_header_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    size = len(Path(write_gguf(path)).read_bytes())
    assert read(str(path)) == GgufModel("{{ messages }}", 16384, 4 * 2 * (8 + 8), size, (), ())
    several = {"llama__attention__head_count_kv": [2, 0, 2, 1], "llama__attention__key_length": 16}
    assert read(write_gguf(path, **several)).cache_values == 5 * (16 + 8)
    assert read(write_gguf(path, split__count=3)).size_bytes > 3 * size


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general__architecture": "clip"}, r"is the vision or audio part of a model \(mmproj\)"),
        ({"general__type": "mmproj"}, r"is the vision or audio part of a model \(mmproj\)"),
        ({"general__type": "adapter"}, "holds no model, but is of the type 'adapter'"),
        ({"llama__pooling_type": 1}, r"makes embeddings or ranks texts \(llama\)"),
        (
            {"general__architecture": "bert", "bert__attention__causal": False},
            r"makes embeddings or ranks texts \(bert\)",
        ),
        ({"general__architecture": "t5encoder"}, r"makes embeddings or ranks texts \(t5encoder\)"),
        ({"tokenizer__chat_template": None}, "has no chat template; name a file in chat_template"),
    ],
)
def test_a_file_that_does_not_chat_is_refused_with_the_reason(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "a.gguf", **changes)
    with pytest.raises(EngineError, match=f"{path} {message}"):
        load(path, tmp_path)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\3\0\0\0" + b"\xff" * 64, b"\x89PNG" * 99])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    for name in (str(path), str(tmp_path / "none.gguf"), str(tmp_path)):
        with pytest.raises(EngineError, match="cannot be read, or is not a GGUF file"):
            load(name, tmp_path)


def test_a_file_that_is_cut_off_is_refused(weights: WeightStore, tmp_path: Path) -> None:
    whole, path = Path(file_of(SMOLLM, weights)), tmp_path / "a.gguf"
    with whole.open("rb") as file:
        path.write_bytes(file.read(8 << 20))
    sizes = f"{8 << 20} of {whole.stat().st_size} bytes"
    with pytest.raises(EngineError, match=f"is cut off: it has {sizes}"):
        load(str(path), tmp_path)


def test_a_file_whose_tensors_are_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="llama.cpp cannot load the model of 'test'"):
        load(write_gguf(tmp_path / "a.gguf"), tmp_path)


def test_layers_on_a_gpu_are_refused_where_the_library_finds_none(tmp_path: Path) -> None:
    options = {"gpu_layers": 9, "context_tokens": 256, "parallel": 1}
    with pytest.raises(EngineError, match=r"gpu_layers: the installed llama.cpp .* finds no GPU"):
        load(write_gguf(tmp_path / "a.gguf"), tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unverified": False}, "needs unverified: true"),
        ({"weights": "smollm2-135m-q4"}, "needs unverified: true"),
        ({"weights": "mine/a.gguf"}, "needs unverified: true"),
        ({"gpu_layers": 9}, "gpu_layers needs context_tokens and parallel, too"),
        ({"context_tokens": 100}, "context_tokens"),
    ],
)
def test_a_path_is_declared_as_unverified(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        configured("/models/a.gguf", **options)


def test_a_path_is_no_artefact_of_the_catalogue() -> None:
    config = configured("file:///models/a.gguf")
    assert files_of(config) == {Path("/models/a.gguf")} and artefacts_of(config) == set()
    assert files_of(SMOLLM) == set() and artefacts_of(SMOLLM) == {"smollm2-135m-q4"}


@pytest.mark.parametrize(
    ("tokens", "trained", "given", "chosen"),
    [
        (10**9, 16384, {}, (8192, 8)),  # as many as are useful
        (10**9, 2048, {}, (2048, 8)),  # no more context than it was trained with
        (40_000, 16384, {}, (4864, 8)),
        (20_000, 16384, {}, (4864, 4)),  # fewer slots before a short context
        (9_000, 16384, {}, (4352, 2)),
        (3_000, 16384, {}, (2816, 1)),
        (10**9, 16384, {"parallel": 3}, (8192, 3)),
        (4_000, 16384, {"parallel": 3}, (1280, 3)),
        (70_000, 16384, {"context_tokens": 32768}, (32768, 2)),
        (10, 16384, {"context_tokens": 512, "parallel": 9}, (512, 9)),  # the operator's own choice
        (400, 16384, {}, None),
        (-9, 16384, {}, None),
        (4_000, 16384, {"context_tokens": 8192}, None),
    ],
)
def test_context_and_slots_fit_in_half_of_the_free_memory(
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    trained: int,
    given: dict[str, int],
    chosen: tuple[int, int] | None,
) -> None:
    model = GgufModel(
        "", trained, 4 * 2 * (8 + 8), size_bytes=5_000, control_texts=(), undivided_texts=()
    )
    monkeypatch.setattr(module, "free_bytes", lambda: 5_000 + round(2 * tokens * TOKEN_BYTES) + 9)
    config = configured("/models/a.gguf", **given)
    if chosen is None:
        with pytest.raises(EngineError, match="too little free memory for 'test'"):
            fitted(config, model)
    else:
        found = fitted(config, model)
        assert (found.context_tokens, found.parallel) == chosen


@pytest.mark.weights
async def test_a_chat_model_is_loaded_from_its_path_with_its_own_template(
    weights: WeightStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLOTS", (2, 1))
    monkeypatch.setattr(module, "MOST_CONTEXT", 1024)
    monkeypatch.setattr(module, "ENOUGH_CONTEXT", 1024)
    path = weights.folder("smollm2-135m-q4") / "model.gguf"
    file = tmp_path / "mine.yaml"
    file.write_text(YAML.format(path=path))
    engine, info = load_model(CHAT, str(file), WeightStore(tmp_path))
    assert (info.id, info.context_tokens) == ("svc/mine", 1024)
    assert engine.capabilities.max_concurrency == 2 and not engine.capabilities.tools
    request = GenerationRequest((ChatMessage("user", "Say hello."),), SamplingOptions(max_tokens=5))
    answer = GenerationDelta.joined([delta async for delta in engine.generate(request)])
    assert answer.text and answer.usage is not None and answer.usage.completion_tokens <= 5
