"""Whether bytes are those that the catalogue pins, by their SHA-256 or by git's name of them."""

import hashlib
from pathlib import Path

from configs.schema.catalogue import WeightFile

_READ_BYTES = 1 << 20


class Digest:
    """Of bytes as they come."""

    def __init__(self, file: WeightFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        # Only where git's name is asked for: it takes as long again.
        self._blob = None if file.git_object is None else _blob(file.size_bytes)
        self._size_bytes = 0

    def add(self, block: bytes) -> None:
        self._sha256.update(block)
        if self._blob is not None:
            self._blob.update(block)
        self._size_bytes += len(block)

    def fits(self) -> bool:
        """Whether all that was added is the file."""
        if self._blob is None:
            return self._sha256.hexdigest() == self._file.sha256
        return self._file.git_object in (self._blob.hexdigest(), self._pointer())

    def found(self) -> str:
        """What was added, in words."""
        return f"SHA-256 {self._sha256.hexdigest()} and {self._size_bytes} bytes"

    def _pointer(self) -> str:
        """Git's name of what Git LFS keeps in place of the file."""
        pointer = (
            "version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{self._sha256.hexdigest()}\nsize {self._size_bytes}\n"
        ).encode()
        blob = _blob(len(pointer))
        blob.update(pointer)
        return blob.hexdigest()


def expected(file: WeightFile) -> str:
    """What it must be, in words."""
    name = f"the git object {file.git_object}" if file.sha256 is None else file.sha256
    return f"{name} and {file.size_bytes}"


def digest_of(file: WeightFile, path: Path) -> Digest:
    """Reads all that lies there. Raises OSError."""
    digest = Digest(file)
    with path.open("rb") as stream:
        while block := stream.read(_READ_BYTES):
            digest.add(block)
    return digest


def _blob(size_bytes: int) -> "hashlib._Hash":
    # Git's names are SHA-1; nothing here depends on more than its second-preimage resistance.
    return hashlib.sha1(f"blob {size_bytes}\0".encode(), usedforsecurity=False)
