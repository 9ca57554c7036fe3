"""A weight store for weights that a test has written."""

from pathlib import Path

from models.weights.store import WeightStore


class OneFolder(WeightStore):
    """A store with one artefact, whatever its name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def folder(self, name: str) -> Path:
        return self._path
