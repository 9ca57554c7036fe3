"""Temporary directories: those of killed processes are deleted, those in use are not."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR
from pipelines.temporary_directories import delete_leftover_directories, temporary_directory

KILLED_PROCESS = """
import os, signal
from pipelines.temporary_directories import temporary_directory

with temporary_directory("upload") as folder:
    (folder / "0").write_bytes(b"RIFF")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_temporary_directory_is_private_and_deleted_even_after_an_error(root: Path) -> None:
    with pytest.raises(ValueError, match="no"), temporary_directory("upload") as folder:
        assert folder.stat().st_mode & 0o77 == 0
        (folder / "0").write_bytes(b"RIFF")
        raise ValueError("no")
    assert names(root) == set()


def test_cleanup_deletes_directories_of_killed_processes_but_none_in_use(root: Path) -> None:
    environment = {"TMPDIR": str(root), "PYTHONPATH": str(PROJECT_DIR)}
    killed = subprocess.run([sys.executable, "-c", KILLED_PROCESS], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    (leftover,) = root.iterdir()
    assert (leftover / "0").read_bytes() == b"RIFF"
    (root / "antiphon-uploaded").mkdir()
    with temporary_directory("upload") as folder, temporary_directory("recordings") as other:
        delete_leftover_directories("upload")
        assert names(root) == {folder.name, other.name, "antiphon-uploaded"}


@pytest.mark.timeout(20)
def test_cleanup_skips_what_other_users_put_in_place_of_a_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "antiphon-upload-pipe")  # to open it for reading would never end
    (root / "kept").mkdir()
    (root / "antiphon-upload-link").symlink_to(root / "kept")
    (root / "antiphon-upload-file").touch()
    there = names(root)
    delete_leftover_directories("upload")
    assert names(root) == there
    (root / "antiphon-upload-theirs").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    delete_leftover_directories("upload")
    assert names(root) == there | {"antiphon-upload-theirs"}


def test_a_directory_deleted_before_its_lock_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another gateway of this machine may start in between; found by the fuzzer of forms."""
    make, made = tempfile.mkdtemp, []

    def cleaned_up_once(prefix: str) -> str:
        made.append(make(prefix=prefix))
        if len(made) == 1:
            delete_leftover_directories("upload")
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", cleaned_up_once)
    with temporary_directory("upload") as folder:
        assert folder == Path(made[1])
        assert folder.is_dir()
