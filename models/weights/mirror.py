"""Fills a folder from which machines without the internet fetch weights: ANTIPHON_MIRROR.

<folder>/<identity>                      each file under its SHA-256
<folder>/listings/<name>@<commit>.json   lists of files that the catalogue lacks
<folder>/catalogue.yaml, models/         the operator's own entries, and their configurations
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from configs.schema.catalogue import EVERY_FILE, FileSource, WeightFile
from models.weights.sources import Downloads
from models.weights.store import (
    WeightStore,
    load_own_catalogue,
    mismatch,
    own_model,
    write_own_catalogue,
)


def fill_mirror(store: WeightStore, names: Iterable[str], folder: Path) -> int:
    """Copies the verified files of the artefacts that the folder lacks; returns their bytes.

    Raises WeightsMissing, WeightsCorrupt or OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    downloads, copied = Downloads(folder, lambda name, got_bytes: None), 0
    own = load_own_catalogue().artefacts
    mirrored = load_own_catalogue(folder / "catalogue.yaml").artefacts
    for name in names:
        store.verify(name)
        known = store.artefact(name).files.values()
        lacking = [one for one in known if not _has(folder / one.identity, one)]
        downloads.check_room(lacking)
        for file in {one.identity: one for one in lacking}.values():
            source = FileSource(kind="file", files={EVERY_FILE: str(store.blob_path(file))})
            os.replace(downloads.get(source, name, file), folder / file.identity)
            copied += file.size_bytes
        if not store.catalogue.artefacts[name].files:
            _copy(store.listing_path(name), folder / "listings")
        if name in own:
            mirrored[name] = own[name]
            _copy(own_model(name), folder / "models")
    if mirrored:
        write_own_catalogue(mirrored, folder / "catalogue.yaml")
    return copied


def _has(path: Path, file: WeightFile) -> bool:
    return path.is_file() and mismatch(file, path) is None


def _copy(file: Path, folder: Path) -> None:
    if file.is_file():  # a model of another form has no configuration
        folder.mkdir(exist_ok=True)
        shutil.copyfile(file, folder / file.name)
