"""Folders for what must not outlive its use, whatever becomes of the process that uses it."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "antiphon-"


@contextmanager
def temporary_directory(purpose: str) -> Iterator[Path]:
    """An empty folder that only this user may read, locked until the block ends; then it goes.

    Of a process that is killed it stays behind: see `delete_leftover_directories`.
    """
    folder, lock = _locked_folder(purpose)
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        finally:
            os.close(lock)


def delete_leftover_directories(purpose: str) -> None:
    """Those of processes that are gone. Blocking."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}{purpose}-*"):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except OSError:  # it is gone, or another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue  # it is in use
        finally:
            os.close(lock)


def _locked_folder(purpose: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if folder.exists():
            return folder, lock
        os.close(lock)  # taken for left between the two
