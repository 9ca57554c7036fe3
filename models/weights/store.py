"""Where fetched weights lie: a content-addressed cache outside the tree."""

from pathlib import Path

from models.errors import WeightsMissing


class WeightStore:
    """Finds the files of an artefact of `configs/catalogue.yaml` in the cache."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folder(self, artefact: str) -> Path:
        """The folder that holds the artefact's files under their own names.

        Raises WeightsMissing, which names the command that fetches them.
        """
        raise WeightsMissing(f"{artefact!r} is not in the cache; run `make weights`")
