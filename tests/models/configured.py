"""The configurations of each kind of engine, over which its contract tests run."""

from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from configs.load import CONFIGS_DIR, load_yaml
from configs.settings import weights_dir
from models.base import Engine, ModelInfo
from models.errors import UnsupportedFeature, WeightsMissing
from models.registry import CHAT, KINDS, LISTED, EngineKind, load, load_model
from models.weights.store import WeightStore, load_catalogue
from tests.engines import CONFIGURATIONS

EngineT = TypeVar("EngineT", bound=Engine)

LARGE_BYTES = 10**9
FOLDERS = {"chat": "llm", "grammar_check": "grammar"}
"""The folders of `configs/` that are not named as their kind."""


def configurations(kind: EngineKind[Any]) -> list[Any]:
    """The names of all configurations of a kind; those with artefacts are marked `weights`, and of
    more than LARGE_BYTES `large`. Those
    of the tests' own engines are paths."""
    own = [pytest.param(path, id=Path(path).stem) for path in CONFIGURATIONS.get(kind.name, ())]
    return own + [
        pytest.param(path.stem, marks=_marks(path)) for path in sorted(_folder(kind).glob("*.yaml"))
    ]


def _marks(path: Path) -> list[pytest.MarkDecorator]:
    catalogue = load_catalogue().artefacts
    sizes = [catalogue[name].size_bytes for name in _artefacts(path.read_text())]
    marks = [pytest.mark.weights] if sizes else []
    return [*marks, pytest.mark.large] if sum(sizes) > LARGE_BYTES else marks


def configured(kind: EngineKind[EngineT], name: str) -> EngineT:
    """The engine of a configuration, loaded once; skips if weights or libraries are missing."""
    return described(kind, name)[0]


def described(kind: EngineKind[EngineT], name: str) -> tuple[EngineT, ModelInfo]:
    """The engine with its ModelInfo, for the kinds whose models clients see."""
    try:
        return cast(tuple[EngineT, ModelInfo], _load(kind.name, name))
    except (WeightsMissing, UnsupportedFeature) as error:
        pytest.skip(str(error))


def engines_in_use(kind: EngineKind[Any]) -> set[str]:
    """The engines that the configurations of a kind name."""
    paths = _folder(kind).glob("*.yaml")
    return {load_yaml(dict[str, Any], str(path))["engine"] for path in paths}


@cache
def _load(kind: str, name: str) -> tuple[Any, ModelInfo | None]:
    store = WeightStore(weights_dir())
    found: Any = KINDS[kind]
    path = name if name.endswith(".yaml") else f"{_folder(found).name}/{name}"
    if found in LISTED:
        # Two threads of llama.cpp wait busily for each other where other tests have the cores.
        return load_model(found, path, store, threads=1 if found is CHAT else None)
    return load(found, path, store), None


def _folder(kind: EngineKind[Any]) -> Path:
    return CONFIGS_DIR / FOLDERS.get(kind.name, kind.name)


def _artefacts(text: str) -> set[str]:
    """The artefacts of the catalogue that a configuration names."""
    words = set(text.replace(",", " ").replace("}", " ").split())
    return words & set(load_catalogue().artefacts)
