"""Temporary folders whose contents are deleted even if the process that uses them is killed."""

import asyncio
import fcntl
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

PREFIX = "antiphon-"
RECORDINGS = "recordings"  # the purpose of folders with the recordings of a custom voice


@contextmanager
def temporary_directory(purpose: str) -> Iterator[Path]:
    """Make an empty folder that only this user may read, locked, and deleted at the end of the
    block. The folder of a killed process remains: see `delete_leftover_directories`."""
    folder, lock = _locked_folder(purpose)
    try:
        yield folder
    finally:
        try:
            shutil.rmtree(folder)
        finally:
            os.close(lock)


@asynccontextmanager
async def temporary_directory_in_thread(purpose: str) -> AsyncIterator[Path]:
    """Makes and deletes a temporary directory in the thread pool: 250 MB take a while."""
    folder = temporary_directory(purpose)
    making = asyncio.ensure_future(asyncio.to_thread(folder.__enter__))
    try:
        yield await asyncio.shield(making)
    finally:
        await asyncio.shield(_delete(making, folder))  # also when the caller is cancelled


async def _delete(making: Awaitable[Path], folder: AbstractContextManager[Path]) -> None:
    await making
    await asyncio.to_thread(folder.__exit__, None, None, None)


def delete_leftover_directories(purpose: str) -> None:
    """Deletes the folders of this user's dead processes. Blocking."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}{purpose}-*"):
        try:
            # Another user's file may be a pipe, whose opening would never end.
            lock = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # deleted meanwhile, or another user's
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue  # it is in use
        finally:
            os.close(lock)


def _locked_folder(purpose: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-"))
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process deleted it as a leftover, before it was locked
        fcntl.flock(lock, fcntl.LOCK_SH)
        if folder.exists():
            return folder, lock
        os.close(lock)
