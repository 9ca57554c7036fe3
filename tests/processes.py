"""Finds the processes of a service by their titles, and kills, terminates or stops them."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.patience import PATIENCE_S


def children(pid: int) -> list[int]:
    """The ids of all descendants of `pid`, in no order."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:  # it has ended
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def command_of(pid: int) -> str:
    """The command line of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def find(ancestor: int, title: str, *, within_s: float = PATIENCE_S) -> list[int]:
    """The descendants with `title` in their command line; waits until there is one."""
    deadline = time.monotonic() + within_s
    while True:
        if found := [pid for pid in children(ancestor) if title in command_of(pid)]:
            return found
        assert time.monotonic() < deadline, f"no process has {title!r} in its title"
        time.sleep(0.1)


def kill(ancestor: int, title: str) -> None:
    """Sends SIGKILL, which no process can handle, to all that `find` returns."""
    for pid in find(ancestor, title):
        os.kill(pid, signal.SIGKILL)


def terminate(ancestor: int, title: str, *, grace_s: float = 3.0) -> None:
    """SIGTERM, and after `grace_s` SIGKILL, as at the shutdown of an operating system.

    Ray's workers take note of SIGTERM only when their main thread has something to do.
    """
    found = find(ancestor, title)
    for pid in found:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while any(map(command_of, found)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """SIGSTOP until the block ends: the processes keep their connections and do nothing."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
