"""A PostgreSQL or a Redis that tests kill, hang and start again on the same data."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.promises.processes import command_of, stopped


class Store:
    """The server process that listens on `port`, which somebody else has started."""

    def __init__(self, port: int) -> None:
        self._pid = _listener(port)
        self._command = Path(f"/proc/{self._pid}/cmdline").read_bytes().split(b"\0")[:-1]
        self._folder = os.readlink(f"/proc/{self._pid}/cwd")
        self._owner = Path(f"/proc/{self._pid}").stat()
        self._again: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """SIGKILL; connections of it end."""
        os.kill(self._pid, signal.SIGKILL)
        if self._again is not None:
            self._again.wait()

    def start(self) -> None:
        """As it was started before, on the data that is there."""
        options = {}
        if os.geteuid() == 0 and self._owner.st_uid != 0:
            options = {
                "user": self._owner.st_uid,
                "group": self._owner.st_gid,
                "extra_groups": [],
            }
        self._again = subprocess.Popen(
            self._command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **options,  # type: ignore[call-overload]
        )
        self._pid = self._again.pid

    def close(self) -> None:
        """Ends what `start` has started."""
        if self._again is not None and self._again.poll() is None:
            self._again.terminate()
            self._again.wait()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It keeps its connections and says nothing."""
        own = [self._pid, *_of_the_same_group(self._pid)]
        with stopped(own):
            yield


def _listener(port: int) -> int:
    """PostgreSQL and Redis both name their port when they are started."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        command = command_of(int(folder.name))
        told = f"port={port}" in command or f"--port {port}" in command or f":{port}" in command
        if told and ("postgres" in command or "redis" in command or "valkey" in command):
            return int(folder.name)
    raise LookupError(f"no server says that it listens on port {port}")


def _of_the_same_group(pid: int) -> list[int]:
    """PostgreSQL serves each connection with a process of its own."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat[1]) == pid:
            found.append(int(folder.name))
    return found
