"""Archives of torch.save: tensors are read, and pickled code is not run."""

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from models.errors import WeightsCorrupt
from models.weights.convert.torch_file import read_tensors


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


def archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name, content in files.items():
            made.writestr(f"archive/{name}", content)
    return path


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"data.pkl": b""},
        {"data.pkl": b"no pickle"},
        {"data.pkl": pickle.dumps({"other": {}})},
        {"data.pkl": pickle.dumps({"model": Evil()})},
        {"data.pkl": pickle.dumps(Evil())},
        {"data.pkl": pickle.dumps([1, 2, 3])},
    ],
)
def test_an_archive_with_other_data_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    path = archive(tmp_path / "a.pt", files)
    with pytest.raises(WeightsCorrupt):
        read_tensors(path, "model")


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps(Evil()), pickle.dumps([1, 2])])
def test_a_checkpoint_that_is_no_dictionary_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(WeightsCorrupt):
        read_tensors(archive(tmp_path / "a.pt", {"data.pkl": content}))


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path / "a.pt", {"data.pkl": pickle.dumps({"model": {}})})
    assert read_tensors(whole, "model") == {}
    data = bytearray(whole.read_bytes())
    data[35:45] = bytes(10)  # overwrites the file's name, in front of its content
    whole.write_bytes(data)
    with pytest.raises(WeightsCorrupt):
        read_tensors(whole, "model")
