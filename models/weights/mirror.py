"""Fills a folder from which machines without the internet fetch weights: ANTIPHON_MIRROR.

<folder>/<identity>                      each file under its SHA-256
<folder>/listings/<name>@<commit>.json   lists of files that the catalogue lacks
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from models.weights.sources import Downloads
from models.weights.store import WeightStore, mismatch


def fill_mirror(store: WeightStore, names: Iterable[str], folder: Path) -> int:
    """Copy the files that the folder lacks; returns their bytes. Raises as `verify`, or OSError."""
    (folder / "listings").mkdir(parents=True, exist_ok=True)
    downloads = Downloads(folder, lambda name, got_bytes: None)
    copied = 0
    for name in names:
        store.verify(name)
        paths = {folder / file.identity: file for file in store.artefact(name).files.values()}
        lacking = {
            path: file for path, file in paths.items() if not path.is_file() or mismatch(file, path)
        }
        downloads.check_room(lacking.values())
        for path, file in lacking.items():
            os.replace(shutil.copyfile(store.blob_path(file), downloads.partial_path(file)), path)
            copied += file.size_bytes
        if not store.catalogue.artefacts[name].files:
            shutil.copy(store.listing_path(name), folder / "listings")
    return copied
