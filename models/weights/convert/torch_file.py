"""Reads the tensors of a file that torch saved, without torch and without running its code.

Such a file is a pickle, which may call anything by name. This reader knows the few names that
tensors are made of, and refuses all others. It reads the zip archives of today, and the format of
torch before 1.6.
"""

import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from models.errors import WeightsCorrupt

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001

Array = NDArray[Any]


@dataclass(slots=True)
class _Storage:
    """The numbers of one or more tensors; they come at the end of the file."""

    dtype: np.dtype[Any]
    length: int
    values: Array | None = None


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor: where in a storage it lies."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in numbers

    def array(self) -> Array:
        values = self.storage.values
        if values is None:
            raise WeightsCorrupt("the file lacks the numbers of a tensor")
        last = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if (
            min(self.offset, *self.strides, *self.shape) < 0
            or self.offset + last >= len(values)
            or math.prod(self.shape) > len(values)
        ):
            raise WeightsCorrupt("a tensor leaves its storage")
        steps = [step * values.itemsize for step in self.strides]
        view = np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, steps)
        return np.ascontiguousarray(view)


def read_tensors(path: Path, section: str) -> dict[str, Array]:
    """The tensors of the dictionary `section` of a checkpoint, by name.

    Raises WeightsCorrupt for whatever is not such a file.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _read_archive(archive, section)
        with path.open("rb") as file:
            return _read(file, section)
    except (
        pickle.UnpicklingError,
        zipfile.BadZipFile,
        EOFError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise WeightsCorrupt(f"{path.name!r} is not a checkpoint of torch: {error}") from error


def _read(file: BinaryIO, section: str) -> dict[str, Array]:
    storages: dict[str, _Storage] = {}
    if (_load(file), _load(file)) != (MAGIC, PROTOCOL):
        raise WeightsCorrupt("the file is of another format than torch's old one")
    if not _load(file)["little_endian"]:
        raise WeightsCorrupt("the file is big-endian")
    views = _load(file, storages)[section]
    for key in _load(file):
        storage = storages[key]
        (length,) = np.frombuffer(file.read(8), "<i8")
        if length != storage.length:
            raise WeightsCorrupt("a storage has another length than it says")
        content = file.read(int(length) * storage.dtype.itemsize)
        storage.values = np.frombuffer(content, storage.dtype, storage.length)
    return {name: view.array() for name, view in views.items() if isinstance(view, _View)}


def _read_archive(archive: zipfile.ZipFile, section: str) -> dict[str, Array]:
    """A pickle beside one file for each storage, in a folder of any name."""
    (folder,) = (name[:-8] for name in archive.namelist() if name.endswith("data.pkl"))
    storages: dict[str, _Storage] = {}
    with archive.open(f"{folder}data.pkl") as file:
        views = _load(file, storages)[section]
    for key, storage in storages.items():
        content = archive.read(f"{folder}data/{key}")
        storage.values = np.frombuffer(content, storage.dtype, storage.length)
    return {name: view.array() for name, view in views.items() if isinstance(view, _View)}


def _load(file: BinaryIO | IO[bytes], storages: dict[str, _Storage] | None = None) -> Any:
    return _Unpickler(file, {} if storages is None else storages).load()


class _Unpickler(pickle.Unpickler):
    """Makes views of tensors, and nothing else that a plain dictionary cannot hold."""

    def __init__(self, file: BinaryIO | IO[bytes], storages: dict[str, _Storage]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in weights") from None

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _, length, *view = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(view):
            raise pickle.UnpicklingError("a reference to something else than a storage")
        return self._storages.setdefault(key, _Storage(dtype, int(length)))


def _tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> _View:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return _View(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


_NAMES: dict[tuple[str, str], Callable[..., Any] | np.dtype[Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}
