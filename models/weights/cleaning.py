"""Finds and deletes files of the cache that no artefact of the catalogue needs."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from models.weights.store import WeightStore

FOLDERS = ("blobs", "checked", "artefacts", "derived", "listings", "downloads")


def leftovers(store: WeightStore) -> set[Path]:
    """Return paths that no artefact of the store's catalogue needs: blobs, folders of older
    versions, and parts of interrupted downloads."""
    needed = set()
    for name, entry in store.catalogue.artefacts.items():
        files = store.artefact(name).files.values()
        needed |= {store.blob_path(file) for file in files}
        needed |= {store.checked_path(file) for file in files}
        needed |= {store.artefact_path(name), store.derived(name, "any").parent}
        if not entry.files:
            needed.add(store.listing_path(name))
    return {path for folder in FOLDERS for path in (store.root / folder).glob("*")} - needed


def delete(paths: Iterable[Path]) -> int:
    """Delete files and folders of the cache; returns their bytes. A replica that has a file open
    can still read it. Raises OSError."""
    freed = 0
    for path in paths:
        freed += size_bytes(path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return freed


def size_bytes(path: Path) -> int:
    """Return the bytes of a file, or of the files in a folder, without the targets of links."""
    files = [file for file in (path, *path.rglob("*")) if file.is_file() and not file.is_symlink()]
    return sum(file.lstat().st_size for file in files)
