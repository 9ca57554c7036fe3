"""The kinds of models that are recognised by their files, and a configuration for each."""

import json
import re
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from configs.environment import cores
from configs.schema.base import ModelConfig
from configs.schema.models.llm import LlamaCppConfig, TransformersChatConfig
from configs.schema.models.stt import OnnxAsrConfig, TransformersWhisperConfig, WhisperConfig
from configs.schema.models.tts import VitsConfig

Gender = Literal["male", "female"]
FORMS: dict[str, tuple[type[ModelConfig], str]] = {
    "llama_cpp": (LlamaCppConfig, "Chat"),
    "transformers": (TransformersChatConfig, "Chat"),
    "whisper": (WhisperConfig, "STT"),
    "whisper_transformers": (TransformersWhisperConfig, "STT"),
    "onnx_asr": (OnnxAsrConfig, "STT"),
    "vits": (VitsConfig, "TTSVits"),
}
"""The type of an engine's configurations, and a deployment of `serve_config.yaml` for the model."""

_WHISPER = ("model.bin", "config.json", "tokenizer.json")
_WHISPER_ALSO = ("vocabulary.txt", "vocabulary.json", "preprocessor_config.json")
# The encoder of a recogniser in ONNX, whose folder has the other graphs. A large float32 graph has
# its weights in a separate file, which the runtime reads only from the folder of the graph.
_ENCODER = re.compile(r"(.*/)?encoder([_-])model([\w.-]*)\.onnx")
_BESIDE_ENCODER: dict[str, tuple[str, tuple[str, ...]]] = {
    "-": ("decoder_joint-model", ("vocab.txt", "config.json")),
    "_": ("decoder_model_merged", ("tokenizer.json",)),
}
_ACCENTS = {"en_US": "American", "en_GB": "British", "en_IN": "Indian"}
_MAX_JSON_BYTES = 1 << 20


class PiperVoice(BaseModel):
    """The fields of a Piper voice's description that are used here; the engine has one speaker."""

    language: dict[str, str]
    dataset: str = ""
    num_speakers: Literal[1] = 1


def form_of(chosen: Collection[str], known: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """Return the engine for the `chosen` paths among those `known`, and the paths by the names
    under which the engine reads them. The engine is None if the kind of model is not recognised.
    Raises ValueError if there are several models."""
    candidates = {
        "llama_cpp": [{"model.gguf": path} for path in chosen if path.endswith(".gguf")],
        "vits": [
            {"model.onnx": path, "model.onnx.json": f"{path}.json"}
            for path in chosen
            if path.endswith(".onnx") and f"{path}.json" in known
        ],
    }
    encoders = filter(None, map(_ENCODER.fullmatch, sorted(chosen)))
    recognisers = [_recogniser(encoder, {*known}) for encoder in encoders]
    candidates["onnx_asr"] = [paths for paths in recognisers if paths]
    if {*_WHISPER} <= {*chosen}:
        files = [path for path in (*_WHISPER, *_WHISPER_ALSO) if path in chosen]
        candidates["whisper"] = [{path: path for path in files}]
    for engine, models in candidates.items():
        if len(models) > 1:
            several = [next(iter(paths.values())) for paths in models]
            raise ValueError(f"choose one of {len(several)} models by --include: {some(several)}")
        if models:
            return engine, models[0]
    return None, {}


def _recogniser(encoder: re.Match[str], known: set[str]) -> dict[str, str]:
    """Return the files of NeMo's or Moonshine's recogniser; empty if one is missing."""
    folder, separator, kind = encoder.groups(default="")
    decoder, texts = _BESIDE_ENCODER[separator]
    suffix = kind if separator == "-" else ""  # NeMo's names keep the quantisation
    paths = {
        f"encoder{separator}model{suffix}.onnx": encoder[0],
        f"{decoder}{suffix}.onnx": f"{folder}{decoder}{kind}.onnx",
        **{text: text for text in texts},
    }
    is_whole = known.issuperset(paths.values()) and f"{encoder[0]}.data" not in known
    return paths if is_whole else {}


def form_inside(folder: Path) -> str | None:
    """Return the engine for a model of the transformers library, by its config.json."""
    config = _json(folder / "config.json")
    if config.get("model_type") == "whisper":
        return "whisper_transformers"
    architectures = " ".join(map(str, config.get("architectures") or ()))
    return "transformers" if architectures.endswith("ForCausalLM") else None


def some(paths: Collection[str]) -> str:
    """Return the first 20 of the names, which strangers have chosen, escaped for a terminal."""
    more = f" and {len(paths) - 20} more" * (len(paths) > 20)
    return ascii(", ".join(sorted(paths)[:20]))[1:-1] + more


def model_yaml(
    engine: str,
    name: str,
    folder: Path,
    title: str,
    owner: str,
    languages: tuple[str, ...],
    gender: Gender | None,
) -> str:
    """Return the configuration of the artefact `name`, whose files are in the folder. `title` is
    the publisher's name of the model. Raises ValueError for files that the engine cannot read."""
    fields: dict[str, Any] = {
        "engine": engine,
        "id": f"svc/{name}",
        "owned_by": owner,
        "created": int(time.time()),  # a file does not say when its weights were made
    }
    if engine == "llama_cpp":
        fields |= {"languages": languages or ("en",), "weights": name, "threads": min(cores(), 8)}
        fields |= {"context_tokens": 4096, "parallel": 4}
    elif engine == "transformers":
        fields |= {"languages": languages or ("en",), "weights": name, **_causal(folder)}
    elif engine == "onnx_asr":
        fields |= {"artefact": name, "languages": languages or ("en",), **_network(folder)}
    elif engine.startswith("whisper"):
        is_distilled = "distil" in title.lower()  # for one language, or few
        translates = not is_distilled and "turbo" not in title.lower()
        fields |= {"artefact": name, "translates": translates}
        if is_distilled:
            fields["languages"] = languages or ("en",)
    else:
        voice = _voice(folder / "model.onnx.json", name)
        voice |= {"key": name, "gender": gender, "weights": name}
        if languages:
            voice["language"] = languages[0]
        fields |= {"tier": "quality", "voices": [voice]}
    config = FORMS[engine][0].model_validate(fields).model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(config, sort_keys=False)
    return f"# Written by `antiphon models pull`; yours to edit.\n{text}"


def _causal(folder: Path) -> dict[str, Any]:
    """Return the settings of a chat model on a GPU; four of its contexts fit in its cache."""
    config = _json(folder / "config.json")
    template = str(_json(folder / "tokenizer_config.json").get("chat_template"))
    if (file := folder / "chat_template.jinja").exists():
        template = file.read_text(errors="replace")
    context = min(int(config.get("max_position_embeddings") or 4096), 8192)
    return {
        "context_tokens": context,
        "cache_tokens": 4 * context,
        "quantization": "none" if "quantization_config" in config else "nf4",
        "tools": "hermes" if "<tool_call>" in template else "none",
    }


def _network(folder: Path) -> dict[str, Any]:
    if not (folder / "vocab.txt").exists():
        return {"architecture": "moonshine"}
    is_int8 = any(path.name.endswith(".int8.onnx") for path in folder.iterdir())
    kind = _json(folder / "config.json").get("model_type")
    return {"architecture": kind, "quantization": "int8" if is_int8 else None}


def _json(file: Path) -> dict[str, Any]:
    """Read the JSON object in a file; empty for a missing, large or other file."""
    with suppress(OSError, ValueError):
        if file.stat().st_size <= 16 * _MAX_JSON_BYTES:
            content = json.loads(file.read_bytes())
            return content if isinstance(content, dict) else {}
    return {}


def _voice(file: Path, name: str) -> dict[str, Any]:
    if file.stat().st_size > _MAX_JSON_BYTES:
        raise ValueError("the description of the voice is larger than 1 MiB")
    piper = PiperVoice.model_validate_json(file.read_bytes())
    code = piper.language.get("code", "").replace("-", "_")
    title = (piper.dataset or name).replace("_", " ").title()[:80]
    return {"name": title, "language": code[:2], "accent": _ACCENTS.get(code, "Neutral")}
