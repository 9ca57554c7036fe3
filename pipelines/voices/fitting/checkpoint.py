"""Checkpoints: the state of a fit as bytes, with the search and the progress."""

import io
import json
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter

from pipelines.voices.fitting.equaliser import BANDS
from pipelines.voices.fitting.search.search import MEASUREMENTS, SearchState

VERSION = 2
EVOLUTION = "evolution "  # prefix of the numbers of CMA-ES

T = TypeVar("T")


class CheckpointError(ValueError):
    """The bytes are no checkpoint of this version."""


def write_checkpoint(searched: SearchState, progress: object) -> bytes:
    """`progress` is a dataclass of plain values. Measured numbers lose some precision."""
    target = io.BytesIO()
    # In full precision, so that the same candidates are drawn again.
    evolution: dict[str, Any] = {
        EVOLUTION + name: value for name, value in searched.evolution.items()
    }
    np.savez_compressed(
        target,
        version=np.array(VERSION),
        progress=np.frombuffer(TypeAdapter(type(progress)).dump_json(progress), np.uint8),
        curve=np.frombuffer(json.dumps(searched.curve).encode(), np.uint8),
        generation=np.array(searched.generation),
        centre=searched.centre,
        bands=searched.bands,
        spectrum=searched.spectrum,
        points=np.array(searched.points, np.float16),
        heard=np.array(searched.sounds, np.float16),
        through=np.array(searched.filters, np.float16),
        sentences=np.array(searched.sentences, np.int32),
        centres=np.array(searched.centres, np.float32),
        squares=searched.squares.astype(np.float32),
        products=searched.products.astype(np.float32),
        **evolution,
    )
    return target.getvalue()


def read_checkpoint(data: bytes, kind: type[T], size: int) -> tuple[SearchState, T]:
    """`size` is that of the space. Raises CheckpointError."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as parts:
            if int(parts["version"]) != VERSION:
                raise CheckpointError("it is of another version")
            searched = SearchState(
                centre=parts["centre"],
                bands=parts["bands"],
                spectrum=parts["spectrum"],
                generation=int(parts["generation"]),
                points=list(parts["points"].astype(np.float64)),
                sounds=list(parts["heard"].astype(np.float64)),
                filters=list(parts["through"].astype(np.float64)),
                sentences=parts["sentences"].tolist(),
                curve=[(int(n), float(v)) for n, v in json.loads(parts["curve"].tobytes())],
                centres=list(parts["centres"].astype(np.float64)),
                squares=parts["squares"].astype(np.float64),
                products=parts["products"].astype(np.float64),
                evolution={
                    name.removeprefix(EVOLUTION): parts[name]
                    for name in parts.files
                    if name.startswith(EVOLUTION)
                },
            )
            progress = TypeAdapter(kind).validate_json(parts["progress"].tobytes())
    except CheckpointError:
        raise
    except Exception as error:  # of NumPy, zip, zlib or even the tokenizer, for corrupt bytes
        raise CheckpointError("it cannot be read") from error
    shapes = {one.shape for one in searched.sounds}
    if searched.centre.shape != (size,) or shapes - {(MEASUREMENTS,)}:
        raise CheckpointError("it is of another engine")
    if searched.bands.shape != (BANDS,):
        raise CheckpointError("it is of another filter")
    return searched, progress
