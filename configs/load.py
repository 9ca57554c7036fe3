"""Reads the YAML files of this folder into their models."""

from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from pydantic import TypeAdapter, ValidationError

CONFIGS_DIR = Path(__file__).resolve().parent
# With libyaml, `languages.yaml`, which each gateway loads, takes 5 ms instead of 43 ms.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

T = TypeVar("T")


def load_yaml(shape: type[T] | TypeAdapter[T], name: str) -> T:
    """Reads `configs/<name>.yaml`, or a path ending in .yaml, and validates it as `shape`. A field
    `like: tts/kokoro` adds missing fields from that file, which has no `like` itself. Raises
    FileNotFoundError, which lists the existing files, or pydantic.ValidationError."""
    adapter: TypeAdapter[T]
    adapter = shape if isinstance(shape, TypeAdapter) else adapter_of(cast(Any, shape))
    data = _read(name)
    if isinstance(data, dict) and isinstance(like := data.pop("like", None), str):
        data = {**_read(like), **data}
    return adapter.validate_python(data)


def changed_at(name: str) -> float:
    """Return when the files that `load_yaml` reads for a name were last changed or replaced
    (seconds since 1970). Raises FileNotFoundError."""
    like = data.get("like") if isinstance(data := _read(name), dict) else None
    paths = map(_path_of, (name, like) if isinstance(like, str) else (name,))
    return max(path.stat().st_ctime for path in paths)


@cache
def adapter_of(shape: Any) -> TypeAdapter[Any]:
    """Builds the validator of a type once per process, which takes milliseconds for a union."""
    return TypeAdapter(shape)


def _path_of(name: str) -> Path:
    return Path(name) if name.endswith(".yaml") else CONFIGS_DIR / f"{name}.yaml"


def _read(name: str) -> Any:
    path = _path_of(name)
    if not path.is_file():
        folder = path.parent
        choices = sorted(p.stem for p in folder.glob("*.yaml")) if folder.is_dir() else []
        raise FileNotFoundError(f"no configuration {name!r}; in {folder.name}/ there are {choices}")
    return yaml.load(path.read_text(encoding="utf-8"), _LOADER)


def explain(error: Exception) -> str:
    """Describes an error of reading or loading in one line for an operator."""
    if isinstance(error, ValidationError):
        return "; ".join(
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
        )
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark) is not None:
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split()) or type(error).__name__
