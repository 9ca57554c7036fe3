"""Archives of torch.save: tensors are read, and pickled code is not run."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from models.errors import WeightsCorrupt
from models.weights.convert.torch_file import MAGIC, PROTOCOL, read_tensors


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in files.items():
            made.writestr(f"archive/{name}", content)
    return path


LEGACY = pickle.dumps(MAGIC) + pickle.dumps(PROTOCOL)


@pytest.mark.parametrize("section", ["model", None])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps(Evil()),
        pickle.dumps([1, 2, 3]),
        pickle.dumps({"model": Evil()}),
    ],
)
def test_an_archive_with_other_data_is_refused(
    content: bytes, section: str | None, tmp_path: Path
) -> None:
    with pytest.raises(WeightsCorrupt):
        read_tensors(archive(tmp_path / "a.pt", {"data.pkl": content}), section)


def test_an_archive_without_the_asked_data_is_refused(tmp_path: Path) -> None:
    for files in ({}, {"data.pkl": pickle.dumps({"other": {}})}):
        with pytest.raises(WeightsCorrupt):
            read_tensors(archive(tmp_path / "a.pt", files), "model")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps(MAGIC),
        pickle.dumps(MAGIC) + pickle.dumps(PROTOCOL + 1),
        LEGACY + pickle.dumps({"little_endian": False}),
        LEGACY + pickle.dumps({"little_endian": True}) + pickle.dumps({"model": Evil()}),
    ],
)
def test_a_file_of_the_old_format_with_other_data_is_refused(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(content)
    with pytest.raises(WeightsCorrupt):
        read_tensors(path, "model")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.pt", {"data.pkl": pickle.dumps({"model": {}})})
    assert read_tensors(whole, "model") == {}
    data = bytearray(whole.read_bytes())
    data[35:45] = bytes(10)  # overwrites the file's name, in front of its content
    whole.write_bytes(data)
    with pytest.raises(WeightsCorrupt):
        read_tensors(whole, "model")
