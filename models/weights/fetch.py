"""Fills the cache of weights: tries sources in order, verifies, resumes, converts.

Each file appears whole or not at all.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Protocol

from configs.schema.catalogue import Artefact, Source, WeightFile
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights.derived import CONVERSIONS, delete_outdated, write_whole
from models.weights.identity import Digest, digest_of, expected
from models.weights.listing import write_listing
from models.weights.sources import SourceFailed, forget, read_file
from models.weights.store import WeightStore


class FetchProgress(Protocol):
    """Receives the progress of a fetch."""

    def waiting(self) -> None:
        """Another process is filling the same cache."""

    def downloading(self, name: str, got_bytes: int) -> None:
        """`name` is a package or a remote file; `got_bytes` have come so far."""

    def stored(self, artefact: str, file: str, size_bytes: int) -> None:
        """A file is verified and in the cache; also told of files that were there before."""


def missing(store: WeightStore, names: Iterable[str]) -> list[str]:
    """The artefacts that are not whole and converted in the cache, judged by sizes."""
    return [name for name in names if not _is_whole(store, name) or _unconverted(store, name)]


def _is_whole(store: WeightStore, name: str) -> bool:
    try:
        store.folder(name)
    except (WeightsMissing, WeightsCorrupt):
        store.artefact(name)  # an unknown name is an error, not an absence
        return False
    return True


def _unconverted(store: WeightStore, name: str) -> dict[str, Path]:
    """The files of the artefact's conversion that were not made yet."""
    paths = store.conversion_paths(name)
    return {file: path for file, path in paths.items() if not path.exists()}


def fetch(store: WeightStore, names: Iterable[str], progress: FetchProgress) -> None:
    """Makes each artefact whole in the cache; a second run at the same time waits for the first.

    Raises WeightsMissing or WeightsCorrupt that lists what every source said, after all the
    other artefacts have been tried.
    """
    failures: list[Exception] = []
    with _only_run(store.root, progress):
        downloads = store.root / "downloads"
        downloads.mkdir(exist_ok=True)
        for draft in [*downloads.glob("draft-*"), *store.root.glob("*/.draft-*")]:
            # Left by a killed run; the lock says that no other run uses it.
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        for name in missing(store, names):
            try:
                if not _is_whole(store, name):
                    _fetch_artefact(store, name, downloads, progress)
                _convert(store, name)
            except (WeightsMissing, WeightsCorrupt) as error:
                failures.append(error)
        if not failures:
            shutil.rmtree(downloads)
    if failures:
        raise type(failures[0])("\n".join(str(error) for error in failures))


def discard_corrupt(store: WeightStore, names: Iterable[str]) -> list[str]:
    """Deletes blobs whose bytes are not what their name says, and lists them for a repair."""
    dropped = []
    for name in names:
        for file in store.artefact(name).files.values():
            blob = store.blob_path(file)
            if blob.is_file() and not digest_of(file, blob).fits():
                blob.unlink()
                dropped.append(blob.name)
    return dropped


@contextmanager
def _only_run(root: Path, progress: FetchProgress) -> Iterator[None]:
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_artefact(
    store: WeightStore, name: str, downloads: Path, progress: FetchProgress
) -> None:
    artefact = store.artefact(name)
    if not artefact.files:
        write_listing(artefact, store.listing_path(name))
        artefact = store.artefact(name)
    for file_name, file in artefact.files.items():
        if not _is_stored(store, file):
            _fetch_file(
                store, f"{file_name!r} of {name!r}", artefact, file_name, downloads, progress
            )
        progress.stored(name, file_name, file.size_bytes)
    _link(store, name)


def _convert(store: WeightStore, name: str) -> None:
    """Makes what is missing of the artefact's conversion, and deletes that of older versions."""
    if not (paths := _unconverted(store, name)):
        return
    conversion = CONVERSIONS[str(store.artefact(name).conversion)]
    made = import_module(conversion.module).convert(store.folder(name))
    for file, path in paths.items():
        write_whole(path, made[file])
        for version in range(conversion.version):
            delete_outdated(path.parent.glob(f"v{version}-{Path(file).stem}*"))


def _is_stored(store: WeightStore, file: WeightFile) -> bool:
    blob = store.blob_path(file)
    return blob.is_file() and blob.stat().st_size == file.size_bytes


def _fetch_file(
    store: WeightStore,
    label: str,
    artefact: Artefact,
    name: str,
    downloads: Path,
    progress: FetchProgress,
) -> None:
    file = artefact.files[name]
    reasons: list[str] = []
    error: type[Exception] = WeightsMissing
    for source in artefact.sources:
        try:
            _store_blob(store, label, source, name, file, downloads, progress)
            return
        except SourceFailed as failure:
            reasons.append(f"{source.kind}: {failure}")
        except WeightsCorrupt as mismatch:
            forget(source, name, file, downloads)
            error = WeightsCorrupt
            reasons.append(f"{source.kind}: {mismatch}")
    raise error(f"no source gave {label}:" + "".join(f"\n  {reason}" for reason in reasons))


def _store_blob(
    store: WeightStore,
    label: str,
    source: Source,
    name: str,
    file: WeightFile,
    downloads: Path,
    progress: FetchProgress,
) -> None:
    blob = store.blob_path(file)
    blob.parent.mkdir(exist_ok=True)
    digest = Digest(file)
    with tempfile.NamedTemporaryFile(dir=blob.parent, prefix=".draft-", delete=False) as draft:
        try:
            for block in read_file(source, name, file, downloads, progress.downloading):
                digest.add(block)
                draft.write(block)
            if not digest.fits():
                raise WeightsCorrupt(f"{label} has {digest.found()}, expected {expected(file)}")
            draft.flush()
            os.fchmod(draft.fileno(), 0o644)
            os.fsync(draft.fileno())
            os.replace(draft.name, blob)  # only a whole, verified file ever has the blob's name
        except BaseException:  # an interrupt too leaves no draft behind
            os.unlink(draft.name)
            raise
    _sync_folder(blob.parent)


def _link(store: WeightStore, name: str) -> None:
    """Shows the artefact under its own file names, all of them at once."""
    final = store.artefact_path(name)
    final.parent.mkdir(exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=final.parent, prefix=".draft-"))
    draft.chmod(0o755)
    for file_name, file in store.artefact(name).files.items():
        link = draft / file_name
        link.parent.mkdir(parents=True, exist_ok=True)
        # Relative, so that the cache can be moved or mounted elsewhere.
        link.symlink_to(os.path.relpath(store.blob_path(file), link.parent))
    if final.exists():
        shutil.rmtree(final)
    os.rename(draft, final)
    _sync_folder(final.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
