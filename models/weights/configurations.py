"""The forms of models that are known by their files, and a configuration for each."""

import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from configs.environment import cores
from configs.schema.base import ModelConfig
from configs.schema.models.llm import LlamaCppConfig
from configs.schema.models.stt import WhisperConfig
from configs.schema.models.tts import VitsConfig

Gender = Literal["male", "female"]
FORMS: dict[str, tuple[type[ModelConfig], str]] = {
    "llama_cpp": (LlamaCppConfig, "Chat"),
    "whisper": (WhisperConfig, "STT"),
    "vits": (VitsConfig, "TTSVits"),
}
"""The type of an engine's configurations, and a deployment of `serve_config.yaml` for the model."""

_WHISPER = ("model.bin", "config.json", "tokenizer.json")
_WHISPER_ALSO = ("vocabulary.txt", "vocabulary.json", "preprocessor_config.json")
_ACCENTS = {"en_US": "American", "en_GB": "British", "en_IN": "Indian"}
_MAX_JSON_BYTES = 1 << 20


class PiperVoice(BaseModel):
    """The description of a Piper voice, as far as it is used here; the engine has one speaker."""

    language: dict[str, str]
    dataset: str = ""
    num_speakers: Literal[1] = 1


def form_of(chosen: Collection[str], known: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """The engine for the `chosen` of the `known` paths, and the paths by the names that it reads;
    None for a form that is not known. Raises ValueError where there are several models."""
    found = {
        "llama_cpp": [{"model.gguf": path} for path in chosen if path.endswith(".gguf")],
        "vits": [
            {"model.onnx": path, "model.onnx.json": f"{path}.json"}
            for path in chosen
            if path.endswith(".onnx") and f"{path}.json" in known
        ],
    }
    if {*_WHISPER} <= {*chosen}:
        found["whisper"] = [{path: path for path in (*_WHISPER, *_WHISPER_ALSO) if path in chosen}]
    for engine, models in found.items():
        if len(models) > 1:
            several = [next(iter(paths.values())) for paths in models]
            raise ValueError(f"choose one of {len(several)} models by --include: {some(several)}")
        if models:
            return engine, models[0]
    return None, {}


def some(paths: Collection[str]) -> str:
    """Some of the names that others have given, for a terminal."""
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
    """The configuration of the artefact `name`, whose files are in the folder; `title` is the
    publisher's name of it. Raises ValueError for files that the engine cannot read."""
    made: dict[str, Any] = {"engine": engine, "id": f"svc/{name}", "owned_by": owner}
    made["created"] = int(time.time())  # that of the weights is not known of a file
    if engine == "llama_cpp":
        made |= {"languages": languages or ("en",), "weights": name, "threads": min(cores(), 8)}
        made |= {"context_tokens": 4096, "parallel": 4}
    elif engine == "whisper":  # neither of these was trained to translate
        translates = re.search("turbo|distil", title.lower()) is None
        made |= {"artefact": name, "translates": translates}
    else:
        voice = _voice(folder / "model.onnx.json", name)
        voice |= {"key": name, "gender": gender, "weights": name}
        if languages:
            voice["language"] = languages[0]
        made |= {"tier": "quality", "voices": [voice]}
    valid = FORMS[engine][0].model_validate(made).model_dump(mode="json", exclude_defaults=True)
    text = yaml.safe_dump(valid, sort_keys=False)
    return f"# Written by `antiphon models pull`; yours to edit.\n{text}"


def _voice(file: Path, name: str) -> dict[str, Any]:
    if file.stat().st_size > _MAX_JSON_BYTES:
        raise ValueError("the description of the voice is larger than 1 MiB")
    piper = PiperVoice.model_validate_json(file.read_bytes())
    code = piper.language.get("code", "").replace("-", "_")
    title = (piper.dataset or name).replace("_", " ").title()[:80]
    return {"name": title, "language": code[:2], "accent": _ACCENTS.get(code, "Neutral")}
