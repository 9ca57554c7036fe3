"""cuBLAS of the package nvidia-cublas-cu12, for which another library stands here."""

import _ctypes
import importlib
import shutil
from pathlib import Path

import pytest

from models.errors import EngineError
from models.runtimes import cublas


def test_the_library_in_the_folder_of_its_package_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "nvidia" / "cublas" / "lib" / cublas.LIBRARY
    library.parent.mkdir(parents=True)
    shutil.copyfile(_ctypes.__file__, library)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    cublas.load_cublas()
    assert str(library) in Path("/proc/self/maps").read_text()


def test_a_missing_library_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "LIBRARY", "libcublas.so.0")
    with pytest.raises(EngineError, match=r"install nvidia-cublas-cu12 \(libcublas.so.0: cannot"):
        cublas.load_cublas()
