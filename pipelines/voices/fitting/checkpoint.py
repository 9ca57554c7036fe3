"""Checkpoints: the state of a fit as bytes, with the search and the progress."""

import io
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter

from pipelines.voices.fitting.equaliser import BANDS
from pipelines.voices.fitting.search.search import MEASUREMENTS, SearchState

VERSION = 3
EVOLUTION = "evolution "  # prefix of the numbers of CMA-ES
LISTS = ("points", "sounds", "filters", "centres")  # lists of arrays that have the same shape
SHORTER = {  # types shorter than float64, which costs measured numbers some precision
    **dict.fromkeys(("points", "sounds", "filters"), np.float16),
    **dict.fromkeys(("centres", "squares", "products"), np.float32),
}

T = TypeVar("T")


class CheckpointError(ValueError):
    """The bytes are no checkpoint of this version."""


def write_checkpoint(searched: SearchState, progress: object) -> bytes:
    """Write a checkpoint, which rounds measurements; `progress` is a dataclass of plain values."""
    plain = {name: value for name, value in vars(searched).items() if name != "evolution"}
    parts: dict[str, Any] = {
        name: np.array(value, SHORTER.get(name)) for name, value in plain.items()
    }
    # In full precision, so that the same candidates are drawn again.
    parts |= {EVOLUTION + name: value for name, value in searched.evolution.items()}
    parts["progress"] = np.frombuffer(TypeAdapter(type(progress)).dump_json(progress), np.uint8)
    target = io.BytesIO()
    np.savez_compressed(target, version=np.array(VERSION), **parts)
    return target.getvalue()


def read_checkpoint(data: bytes, kind: type[T], size: int) -> tuple[SearchState, T]:
    """Read a checkpoint; `size` is that of the space. Raises CheckpointError."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            parts: dict[str, Any] = dict(stored)
        if int(parts.pop("version")) != VERSION:
            raise CheckpointError("it is of another version")
        progress = TypeAdapter(kind).validate_json(parts.pop("progress").tobytes())
        parts |= {name: parts[name].astype(np.float64) for name in SHORTER}
        parts |= {name: list(parts[name]) for name in LISTS}
        parts |= {name: parts[name].tolist() for name in ("generation", "sentences")}
        parts["curve"] = [(int(count), value) for count, value in parts["curve"].tolist()]
        evolution = {name: parts.pop(name) for name in [*parts] if name.startswith(EVOLUTION)}
        evolution = {name.removeprefix(EVOLUTION): value for name, value in evolution.items()}
        searched = SearchState(**parts, evolution=evolution)
    except CheckpointError:
        raise
    except Exception as error:  # NumPy, zip, zlib or even the tokenizer raises for corrupt bytes
        raise CheckpointError("it cannot be read") from error
    shapes = {sound.shape for sound in searched.sounds}
    if searched.centre.shape != (size,) or shapes - {(MEASUREMENTS,)}:
        raise CheckpointError("it is of another engine")
    if searched.bands.shape != (BANDS,):
        raise CheckpointError("it is of another filter")
    return searched, progress
