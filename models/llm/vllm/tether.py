"""Ends the processes of vLLM with the process that started them."""

import os
import signal
import threading
import time
from collections.abc import Callable

POLL_S = 1.0


class Tether:
    """Part of vLLM's configuration, which vLLM pickles for the processes that it starts. Such a
    process then watches its parent, and ends with it. Without it, vLLM's core outlives a replica
    that is killed, and keeps its GPU."""

    def compute_hash(self) -> str:
        """Return this setting's part of the name of vLLM's caches of compiled code: none."""
        return ""

    def __reduce__(self) -> tuple[Callable[[int], "Tether"], tuple[int]]:
        return _tethered, (os.getpid(),)


def _tethered(parent: int) -> Tether:
    """Unpickle a Tether; a copy in the same process watches nothing."""
    if os.getppid() == parent:
        threading.Thread(target=_end_with, args=(parent,), name="tether", daemon=True).start()
    return Tether()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
