"""Processes that a benchmark starts: with a pipe to talk to, and the core seconds they use."""

import multiprocessing
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from benchmarks.harness.service import processor_seconds

STOP_S = 20.0  # for a process to end, before it is killed
DEPLOYMENT = re.compile(r"ServeReplica:\w+:(\w+)")


class Worker:
    """A process that runs a function, which gets the other end of a pipe as its first argument."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, end = spawn.Pipe()
        self._process = spawn.Process(target=target, args=(end, *arguments), daemon=True)
        self._process.start()
        end.close()
        self.greeting: Any = self.pipe.recv()
        """The first message, which says that the process is ready."""

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def ask(self, message: Any) -> Any:
        """Send a message and return the answer."""
        self.pipe.send(message)
        return self.pipe.recv()

    def stop(self) -> None:
        """Send None, which every function takes as its end, and wait for the process."""
        with suppress(OSError):  # it has ended
            self.pipe.send(None)
        self._process.join(STOP_S)
        self.kill()

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def workers(count: int, target: Callable[..., None], *arguments: Any) -> Iterator[list[Worker]]:
    """Run as many processes of a function until the block ends."""
    started: list[Worker] = []
    try:
        for _ in range(count):
            started.append(Worker(target, *arguments))
        yield started
    finally:
        for worker in started:
            worker.stop()


class CpuTimes:
    """Core seconds of processes and their descendants, without those that have ended."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._before = self._now()

    def _now(self) -> dict[str, dict[str, float]]:
        return {name: processor_seconds(pid) for name, pid in self._pids.items()}

    def used(self) -> dict[str, float]:
        """Core seconds since the beginning, by the names of the processes."""
        now = self._now()
        return {name: sum(now[name].values()) - sum(self._before[name].values()) for name in now}

    def used_by_deployment(self, name: str) -> dict[str, float]:
        """Core seconds of the descendants of one process, by the deployment in their titles.

        "" stands for Ray's own processes. Ray changes a replica's title while it works; the title
        at the beginning is then used.
        """
        used: dict[str, float] = defaultdict(float)
        before = {title.partition(" ")[0]: (title, s) for title, s in self._before[name].items()}
        for title, seconds in processor_seconds(self._pids[name]).items():
            old_title, spent_s = before.get(title.partition(" ")[0], ("", 0.0))
            match = DEPLOYMENT.search(title) or DEPLOYMENT.search(old_title)
            used[match[1] if match else ""] += seconds - spent_s
        return dict(used)
