"""Temporary folders whose contents are deleted even if the process that uses them is killed."""

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
    """An empty folder that only this user may read, locked, and deleted at the end of the block.

    That of a killed process is left over: see `delete_leftover_directories`.
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
    """Deletes the folders of dead processes. Blocking."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}{purpose}-*"):
        try:
            lock = os.open(folder, os.O_RDONLY)
        except OSError:  # deleted meanwhile, or another user's
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
        os.close(lock)  # deleted as a leftover between mkdtemp and flock
