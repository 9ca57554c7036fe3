"""The state of a fit as bytes: what was heard, and how far the rest has come."""

import io
import json
from typing import Any, TypeVar

import numpy as np
from pydantic import TypeAdapter

from models.speaker.base import EMBEDDING_SIZE
from pipelines.voices.fitting.equaliser import BANDS
from pipelines.voices.fitting.search.search import MARKS, Searched

VERSION = 1
EVOLUTION = "evolution "  # before the names of what CMA-ES remembers, where the search has it

T = TypeVar("T")


class CheckpointError(ValueError):
    """The bytes are no checkpoint of this version."""


def write_checkpoint(searched: Searched, progress: object) -> bytes:
    """`progress` is a dataclass of plain values. Numbers that were measured lose a little."""
    target = io.BytesIO()
    # To the last digit, so that the same is drawn again.
    evolution: dict[str, Any] = {
        EVOLUTION + name: value for name, value in searched.evolution.items()
    }
    squares, products = zip(*searched.products, strict=True) if searched.products else ((), ())
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
        heard=np.array(searched.heard, np.float16),
        through=np.array(searched.through, np.float16),
        sentences=np.array(searched.sentences, np.int32),
        centres=np.array(searched.centres, np.float32),
        squares=np.array(squares, np.float32),
        products=np.array(products, np.float32),
        **evolution,
    )
    return target.getvalue()


def read_checkpoint(data: bytes, kind: type[T], size: int) -> tuple[Searched, T]:
    """`size` is that of the space. Raises CheckpointError."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as parts:
            if int(parts["version"]) != VERSION:
                raise CheckpointError("it is of another version")
            searched = Searched(
                centre=parts["centre"],
                bands=parts["bands"],
                spectrum=parts["spectrum"],
                generation=int(parts["generation"]),
                points=list(parts["points"].astype(np.float64)),
                heard=list(parts["heard"].astype(np.float64)),
                through=list(parts["through"].astype(np.float64)),
                sentences=parts["sentences"].tolist(),
                curve=[(int(n), float(v)) for n, v in json.loads(parts["curve"].tobytes())],
                centres=list(parts["centres"].astype(np.float64)),
                products=list(
                    zip(
                        parts["squares"].astype(np.float64),
                        parts["products"].astype(np.float64),
                        strict=True,
                    )
                ),
                evolution={
                    name.removeprefix(EVOLUTION): parts[name]
                    for name in parts.files
                    if name.startswith(EVOLUTION)
                },
            )
            progress = TypeAdapter(kind).validate_json(parts["progress"].tobytes())
    except CheckpointError:
        raise
    except Exception as error:  # of NumPy, zip, zlib and even the tokenizer, for any wrong byte
        raise CheckpointError("it cannot be read") from error
    shapes = {one.shape for one in searched.heard}
    if searched.centre.shape != (size,) or shapes - {(EMBEDDING_SIZE + MARKS,)}:
        raise CheckpointError("it is of another engine")
    if searched.bands.shape != (BANDS,):
        raise CheckpointError("it is of another filter")
    return searched, progress
