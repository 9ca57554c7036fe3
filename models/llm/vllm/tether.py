"""Ends the processes of vLLM with the process that started them."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess


class Tether:
    """Part of vLLM's configuration, which vLLM pickles for the processes that it starts.

    In such a process it waits for the end of the parent, and then kills the process. Without it, a
    core outlives a replica that is killed, and keeps its GPU.
    """

    def compute_hash(self) -> str:
        """Return a part of the name of caches of compiled code, as vLLM asks for."""
        return ""

    def __reduce__(self) -> tuple[Callable[[], "Tether"], tuple[()]]:
        return _tethered, ()


def _tethered() -> Tether:
    """Unpickle a Tether. Processes that Python did not spawn, such as replicas, have no parent."""
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent,), name="tether", daemon=True).start()
    return Tether()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
