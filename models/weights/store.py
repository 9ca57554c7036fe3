"""The store of fetched weights: a content-addressed cache outside the tree.

<root>/blobs/<identity>                    the bytes, shared by all artefacts
<root>/artefacts/<name>@<fingerprint>/     links to blobs under the files' own names
<root>/checked/<identity>                  size and time of the bytes when they were last read whole
<root>/derived/<name>@<fingerprint>/       results of conversions and engines
<root>/downloads/                          partial downloads of unfinished runs
<root>/listings/<name>@<commit>.json       files of a commit that the catalogue does not list
"""

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader, BytesIO
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from configs.environment import SettingsError
from configs.load import explain, load_yaml
from configs.schema.catalogue import Artefact, Catalogue, WeightFile
from configs.settings import own_catalogue
from models.errors import WeightsCorrupt, WeightsMissing

logger = logging.getLogger(__name__)

_PULL = "run `make weights` or `antiphon models pull {}`"
_REPAIR = "run `python -m models.weights fetch --repair` or `make weights`"
_HEADER = "# Weights of your own: `antiphon models pull` and `remove` write this file.\n"

# The files of a commit of the model hub. Without hashes in the catalogue, the list of the first
# fetch is final: a commit cannot change.
LISTING = TypeAdapter(dict[str, WeightFile])


def load_catalogue() -> Catalogue:
    """Read `configs/catalogue.yaml` and the operator's own entries, as they are now: a swap may
    name weights that were added. Raises SettingsError if both have the same name."""
    ours = load_yaml(Catalogue, "catalogue").artefacts
    own = load_own_catalogue().artefacts
    if both := sorted(ours.keys() & own.keys()):
        raise SettingsError(
            f"ANTIPHON_CATALOGUE: {own_catalogue()} has {', '.join(both)}, which is in"
            " configs/catalogue.yaml too; give it another name there"
        )
    return Catalogue(artefacts={**ours, **own})


def load_own_catalogue() -> Catalogue:
    """Read the operator's own entries. Raises SettingsError if the file cannot be read."""
    path = own_catalogue()
    try:
        return load_yaml(Catalogue, str(path)) if path.exists() else Catalogue(artefacts={})
    except (OSError, ValueError, yaml.YAMLError) as error:
        message = f"ANTIPHON_CATALOGUE: {path} cannot be read: {explain(error)}"
        raise SettingsError(message) from None


def write_own_catalogue(artefacts: dict[str, Artefact]) -> None:
    """Replace the operator's own entries. Raises OSError."""
    path = own_catalogue()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the data folder has secrets
    shape = Catalogue(artefacts=artefacts).model_dump(mode="json", exclude_defaults=True)
    write_whole(path, (_HEADER + yaml.safe_dump(shape, sort_keys=False)).encode())


def own_model(name: str) -> Path:
    """Return the path of the configuration that `models pull` writes for a model; may not exist."""
    return own_catalogue().parent / "models" / f"{name}.yaml"


class WeightStore:
    """Finds the files of an artefact of the catalogue in the cache."""

    def __init__(self, root: Path, catalogue: Catalogue | None = None) -> None:
        self.root = root
        self.catalogue = catalogue or load_catalogue()

    def artefact(self, name: str) -> Artefact:
        """Return the artefact of that name. Raises WeightsMissing, which lists the known names."""
        try:
            artefact = self.catalogue.artefacts[name]
        except KeyError:
            names = ", ".join(sorted(self.catalogue.artefacts))
            raise WeightsMissing(f"no artefact {name!r} in the catalogue; it has {names}") from None
        if artefact.files:
            return artefact
        try:
            files = LISTING.validate_json(self.listing_path(name).read_bytes())
        except (OSError, ValidationError):
            return artefact  # an artefact without files, until a fetch lists them
        return artefact.model_copy(update={"files": files})

    def listing_path(self, name: str) -> Path:
        """Return the path of the hub's list of the files of a commit; it may not exist."""
        revision = self.catalogue.artefacts[name].listed_source().revision
        return self.root / "listings" / f"{name}@{revision}.json"

    def blob_path(self, file: WeightFile) -> Path:
        """Return the path of the bytes of a file, which may not exist."""
        return self.root / "blobs" / file.identity

    def has(self, file: WeightFile) -> bool:
        """Whether the bytes of a file are in the cache, judged by their number."""
        blob = self.blob_path(file)
        return blob.is_file() and blob.stat().st_size == file.size_bytes

    def is_checked(self, file: WeightFile) -> bool:
        """Whether the bytes of a file match the catalogue. They are read only if size or
        modification time differ from those of the last check, which `checked/` keeps: 450 MB take a
        second, and `make run` checks them at each start. Raises OSError."""
        if self.was_checked(file):
            return True
        if mismatch(file, self.blob_path(file)):
            return False
        self.note_checked(file)
        return True

    def was_checked(self, file: WeightFile) -> bool:
        """Whether a file has the size and time of its last check. Raises OSError."""
        note = self.checked_path(file)
        return note.is_file() and note.read_bytes() == _state(self.blob_path(file))

    def note_checked(self, file: WeightFile) -> None:
        """Record that the bytes of a file have been read and are right. Raises OSError."""
        with suppress(OSError):  # a cache of another user is read again next time
            write_whole(self.checked_path(file), _state(self.blob_path(file)))

    def checked_path(self, file: WeightFile) -> Path:
        """Return the path of the note of the file's last check, which may not exist."""
        return self.root / "checked" / file.identity

    def store_converted(self, path: Path, content: bytes) -> None:
        """Write a converted file, and its digest for `is_as_converted`. Raises OSError."""
        write_whole(path, content)
        digest = hashlib.sha256(content).hexdigest()
        write_whole(_digest_path(path), _state(path) + b" " + digest.encode())

    def is_as_converted(self, path: Path, *, reread: bool = True) -> bool:
        """Whether the bytes of a converted file are those that were written. Without `reread` they
        are read only if size or modification time have changed. Raises OSError."""
        try:
            state, _, digest = _digest_path(path).read_bytes().rpartition(b" ")
        except FileNotFoundError:
            return False
        if not reread and state == _state(path):
            return True
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest().encode() == digest

    def artefact_path(self, name: str) -> Path:
        """Return the path of the folder of an artefact, which may not exist."""
        return self.root / "artefacts" / f"{name}@{self.artefact(name).fingerprint}"

    def derived(self, name: str, file_name: str) -> Path:
        """Return the path of a file computed from the artefact's weights, which may not exist."""
        return self.root / "derived" / f"{name}@{self.artefact(name).fingerprint}" / file_name

    def folder(self, name: str) -> Path:
        """Return the folder with the artefact's files under their own names. Compares sizes only,
        so that it is cheap enough for every start; `verify` reads the bytes. Raises WeightsMissing,
        which names the command that fetches them, or WeightsCorrupt."""
        artefact = self.artefact(name)
        if not artefact.files:
            raise WeightsMissing(
                f"the files of {name!r} were never listed; run `antiphon models pull {name}`"
            )
        folder = self.artefact_path(name)
        for file_name, file in artefact.files.items():
            try:
                size_bytes = (folder / file_name).stat().st_size
            except PermissionError:
                raise WeightsMissing(
                    f"user {os.geteuid()} may not read {str(folder)!r}: make it readable, or set"
                    " ANTIPHON_WEIGHTS to another folder"
                ) from None
            except OSError:
                raise WeightsMissing(
                    f"{file_name!r} of {name!r} is not in the cache; {_PULL.format(name)}"
                ) from None
            if size_bytes != file.size_bytes:
                raise WeightsCorrupt(
                    f"{file_name!r} of {name!r} has {size_bytes} bytes, not {file.size_bytes};"
                    " run `make weights`"
                )
        return folder

    def converted(self, name: str) -> dict[str, Path]:
        """Return the converted files, by name. Raises WeightsMissing or WeightsCorrupt."""
        self.folder(name)
        paths = self.conversion_paths(name)
        for path in paths.values():
            if not path.exists():
                raise WeightsMissing(
                    f"{path.name!r} of {name!r} was never built; {_PULL.format(name)}"
                )
        return paths

    def conversion_paths(self, name: str) -> dict[str, Path]:
        """Return the paths of converted files, which may not exist; empty without a conversion."""
        if (conversion := self.catalogue.artefacts[name].conversion) is None:
            return {}
        return {
            file: self.derived(name, f"v{conversion.version}-{file}") for file in conversion.files
        }

    def verify(self, name: str) -> Path:
        """Read every byte, also of converted files; return the `folder`, and raise as it does."""
        folder = self.folder(name)
        for file_name, file in self.artefact(name).files.items():
            if wrong := mismatch(file, folder / file_name):
                raise WeightsCorrupt(f"{file_name!r} of {name!r} has {wrong}; {_REPAIR}")
            self.note_checked(file)
        for path in self.converted(name).values():
            if not self.is_as_converted(path):
                raise WeightsCorrupt(
                    f"{path.name!r}, converted from {name!r}, is not as it was written; {_REPAIR}"
                )
        return folder


def _state(path: Path) -> bytes:
    """Return size and modification time, which show whether a file is unchanged. Raises OSError."""
    status = path.stat()
    return f"{status.st_size} {status.st_mtime_ns}".encode()


def _digest_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def mismatch(file: WeightFile, path: Path) -> str | None:
    """Describe how the bytes differ from the catalogue; None if they match. Raises OSError."""
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        size_bytes = stream.tell()
        if file.git_object is None:
            expected = file.sha256
            fits = (sha256, size_bytes) == (file.sha256, file.size_bytes)
        else:
            pointer = (
                "version https://git-lfs.github.com/spec/v1\n"
                f"oid sha256:{sha256}\nsize {size_bytes}\n"
            ).encode()
            stream.seek(0)
            expected = f"the git object {file.git_object}"
            fits = file.git_object in (
                _git_hash(stream, size_bytes),
                _git_hash(BytesIO(pointer), len(pointer)),  # digest of a file in Git LFS
            )
    if fits:
        return None
    return f"SHA-256 {sha256} and {size_bytes} bytes, expected {expected} and {file.size_bytes}"


def _git_hash(content: BufferedReader | BytesIO, size_bytes: int) -> str:
    # A SHA-1; only its second-preimage resistance matters here.
    digest = hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)
    return hashlib.file_digest(content, lambda: digest).hexdigest()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, since several replicas may start at once. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.chmod(file.name, 0o644)  # the cache may be shared
    os.replace(file.name, path)


def delete_outdated(paths: Iterable[Path]) -> None:
    """Delete the files that exist. A replica that has one open can still read it."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # another user's file; it only takes disk space
            logger.warning("outdated_file_not_deleted", extra={"reason": str(error)})
            return
        logger.info("outdated_file_deleted", extra={"file": path.name})
