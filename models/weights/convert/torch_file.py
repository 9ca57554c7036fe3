"""Reads the tensors of a file of `torch.save`, without torch and without running its code. Such a
file is a pickle, which may call any function by name: this reader allows the few that tensors need.
It reads the zip archives of current torch, and the format before 1.6."""

import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from models.errors import WeightsCorrupt

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
MAX_NUMBERS = 2**28  # elements of one storage

Array = NDArray[Any]


def read_tensors(path: Path, section: str | None = None) -> dict[str, Array]:
    """Read the tensors of a checkpoint, or of its dictionary `section`. Raises WeightsCorrupt."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _read_archive(archive, section)
        with path.open("rb") as file:
            return _read(file, section)
    except (
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        AttributeError,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise WeightsCorrupt(f"{path.name!r} is not a checkpoint of torch: {error}") from error


def _read(file: BinaryIO, section: str | None) -> dict[str, Array]:
    """Read the format of torch before 1.6, whose storages are at the end of the file."""
    storages: dict[str, Array] = {}
    if (_load(file), _load(file)) != (MAGIC, PROTOCOL):
        raise WeightsCorrupt("the file is of another format than torch's old one")
    if not _load(file)["little_endian"]:
        raise WeightsCorrupt("the file is big-endian")
    tensors = _load(file, storages)
    for key in _load(file):
        storage = storages.pop(key)
        (length,) = np.frombuffer(file.read(8), "<i8")
        if length != len(storage):
            raise WeightsCorrupt("a storage has a different length than it states")
        storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype, len(storage))
    if storages:
        raise WeightsCorrupt("the file lacks the numbers of a tensor")
    return _contiguous(tensors, section)


def _read_archive(archive: zipfile.ZipFile, section: str | None) -> dict[str, Array]:
    """Read the zip format: a pickle and one file per storage, in a folder of any name."""
    (folder,) = (name[:-8] for name in archive.namelist() if name.endswith("data.pkl"))
    storages: dict[str, Array] = {}
    with archive.open(f"{folder}data.pkl") as file:
        tensors = _load(file, storages)
    for key, storage in storages.items():
        content = archive.read(f"{folder}data/{key}")
        storage[:] = np.frombuffer(content, storage.dtype, len(storage))
    return _contiguous(tensors, section)


def _contiguous(checkpoint: dict[str, Any], section: str | None) -> dict[str, Array]:
    tensors = checkpoint if section is None else checkpoint[section]
    return {
        name: np.ascontiguousarray(tensor)
        for name, tensor in tensors.items()
        if isinstance(tensor, np.ndarray)
    }


def _load(file: BinaryIO | IO[bytes], storages: dict[str, Array] | None = None) -> Any:
    return _Unpickler(file, {} if storages is None else storages).load()


class _Unpickler(pickle.Unpickler):
    """Unpickles tensors, as views of `storages` that are read later, and plain containers."""

    def __init__(self, file: BinaryIO | IO[bytes], storages: dict[str, Array]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in weights") from None

    def persistent_load(self, pid: Any) -> Array:
        kind, dtype, key, _, length, *view = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(view):
            raise pickle.UnpicklingError("a reference to something other than a storage")
        if not 0 <= length <= MAX_NUMBERS:
            raise WeightsCorrupt(f"a storage of {length} numbers")
        return self._storages.setdefault(key, np.empty(length, dtype))


def _tensor(
    storage: Array, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> Array:
    """Return a view of a storage; `offset` and `strides` are in elements."""
    if not isinstance(storage, np.ndarray):
        raise pickle.UnpicklingError("a tensor without a storage")
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if (
        min(offset, 0, *strides, *shape) < 0
        or offset + last >= len(storage)
        or math.prod(shape) > len(storage)
    ):
        raise WeightsCorrupt("a tensor exceeds its storage")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)


_NAMES: dict[tuple[str, str], Callable[..., Any] | np.dtype[Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}
