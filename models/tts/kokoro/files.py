"""The graphs that are made once of Kokoro's published one, and kept beside the weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.weights.derived import delete_outdated, write_whole
from models.weights.store import WeightStore

PARTS = 9  # of the vocoder, each with about the same work
PLAN_OUTPUTS = ("durations", "features", "source")
"""Frames of 25 ms a symbol [1, n]; float32 [1, 514, frames]; float32 [1, 22, 120 frames + 1]."""
SILENT_FRAME = 2  # of those that the vocoder gets: between where it was cut and the speech
VERSION = 3  # of the rewriting; another number makes the files anew


@dataclass(frozen=True, slots=True)
class KokoroFiles:
    """Where they lie."""

    plan: Path  # from symbols to frames
    parts: Sequence[Path]  # from frames to sound


def kokoro_files(artefact: str, weights: WeightStore) -> KokoroFiles:
    """Makes what is missing, which takes seconds. Raises WeightsMissing or WeightsCorrupt."""
    published = weights.folder(artefact) / "kokoro.onnx"
    names = ("plan", *(f"part{index}" for index in range(PARTS)))
    paths = {name: weights.derived(artefact, f"v{VERSION}-{name}.onnx") for name in names}
    if not all(path.exists() for path in paths.values()):
        from models.weights.convert.kokoro import (
            split_kokoro,  # slow to import, and hardly ever needed
        )

        for name, content in split_kokoro(published).items():
            write_whole(paths[name], content)
    for version in range(VERSION):
        delete_outdated(paths["plan"].parent.glob(f"v{version}-*"))
    return KokoroFiles(paths["plan"], [paths[name] for name in names[1:]])
