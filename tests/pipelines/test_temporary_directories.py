"""What a killed process leaves behind is deleted, and nothing else."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR
from pipelines.temporary_directories import delete_leftover_directories, temporary_directory

DIES = """
import os, signal
from pipelines.temporary_directories import temporary_directory

with temporary_directory("upload") as folder:
    (folder / "0").write_bytes(b"RIFF")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_a_folder_goes_with_all_that_is_in_it_also_after_a_failure(place: Path) -> None:
    with pytest.raises(ValueError, match="no"), temporary_directory("upload") as folder:
        assert folder.stat().st_mode & 0o77 == 0
        (folder / "0").write_bytes(b"RIFF")
        raise ValueError("no")
    assert names(place) == set()


def test_what_a_killed_process_left_is_deleted_and_nothing_else(place: Path) -> None:
    environment = {"TMPDIR": str(place), "PYTHONPATH": str(PROJECT_DIR)}
    died = subprocess.run([sys.executable, "-c", DIES], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = place.iterdir()
    assert (left / "0").read_bytes() == b"RIFF"
    (place / "antiphon-uploaded").mkdir()
    with temporary_directory("upload") as folder, temporary_directory("recordings") as other:
        delete_leftover_directories("upload")
        assert names(place) == {folder.name, other.name, "antiphon-uploaded"}
