"""The forms of models that are known by their files, and a configuration for each."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
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
_WHISPER = ("model.bin", "config.json", "tokenizer.json")
_WHISPER_ALSO = ("vocabulary.txt", "vocabulary.json", "preprocessor_config.json")
_ACCENTS = {"en_us": "American", "en_gb": "British", "en_in": "Indian"}
_MAX_JSON_BYTES = 1 << 20


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model besides its files."""

    title: str  # its publisher's name of it
    owner: str
    created: int  # Unix seconds
    languages: tuple[str, ...] = ()
    gender: Gender | None = None  # of a voice


class PiperVoice(BaseModel):
    """What the engine needs of the description of a Piper voice, which has one speaker."""

    language: dict[str, str | None]
    dataset: str | None = None
    num_speakers: Literal[1] = 1
    audio: dict[str, int | str]
    espeak: dict[str, str]
    inference: dict[str, float]
    phoneme_id_map: dict[str, list[int]]


def form_of(chosen: Collection[str], known: Collection[str]) -> tuple[str | None, dict[str, str]]:
    """The engine of the `chosen` of the `known` paths, and the paths by the names that it reads;
    None for a form that is not known. Raises ValueError where there are several models."""
    found = {
        "llama_cpp": [{"model.gguf": path} for path in chosen if path.endswith(".gguf")],
        "vits": [
            {"model.onnx": path, "model.onnx.json": f"{path}.json"}
            for path in chosen
            if path.endswith(".onnx") and f"{path}.json" in known
        ],
        "whisper": [{path: path for path in (*_WHISPER, *_WHISPER_ALSO) if path in chosen}],
    }
    if not {*_WHISPER} <= {*chosen}:
        del found["whisper"]
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


def model_yaml(engine: str, name: str, facts: ModelFacts, folder: Path) -> str:
    """The configuration of the artefact `name`, whose files are in the folder. Raises ValueError
    for files that the engine cannot read."""
    made = _MAKERS[engine][1](name, facts, folder)
    text = yaml.safe_dump(made.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    return f"# Written by `antiphon models pull`; yours to edit.\n{text}"


def deployment_of(engine: str) -> str:
    """The deployment of `serve_config.yaml` whose model it can be."""
    return _MAKERS[engine][0]


def _chat(name: str, facts: ModelFacts, folder: Path) -> ModelConfig:
    return LlamaCppConfig(
        engine="llama_cpp",
        **_common(name, facts),
        languages=tuple(one for one in facts.languages if len(one) == 2) or ("en",),
        weights=name,
        context_tokens=4096,
        parallel=4,
        threads=min(cores(), 8),
    )


def _recogniser(name: str, facts: ModelFacts, folder: Path) -> ModelConfig:
    # Neither was trained to translate.
    translates = re.search("turbo|distil", facts.title.lower()) is None
    return WhisperConfig(
        engine="whisper", **_common(name, facts), artefact=name, translates=translates
    )


def _voice(name: str, facts: ModelFacts, folder: Path) -> ModelConfig:
    file = folder / "model.onnx.json"
    if file.stat().st_size > _MAX_JSON_BYTES:
        raise ValueError("the description of the voice is larger than 1 MiB")
    piper = PiperVoice.model_validate_json(file.read_bytes())
    code = (piper.language.get("code") or "").lower().replace("-", "_")
    voice = {
        "key": name,
        "name": (piper.dataset or name).replace("_", " ").title()[:80],
        "language": [*facts.languages, code[:2]][0],
        "gender": facts.gender,
        "accent": _ACCENTS.get(code, "Neutral"),
        "weights": name,
    }
    engine = {"engine": "vits", "tier": "quality", "voices": [voice]}
    return VitsConfig.model_validate(_common(name, facts) | engine)


def _common(name: str, facts: ModelFacts) -> dict[str, Any]:
    return {"id": f"svc/{name}", "owned_by": facts.owner, "created": facts.created}


_MAKERS: dict[str, tuple[str, Callable[[str, ModelFacts, Path], ModelConfig]]] = {
    "llama_cpp": ("Chat", _chat),
    "whisper": ("STT", _recogniser),
    "vits": ("TTSVits", _voice),
}
