"""Measures waiting times without the pauses of a machine that is busy with other work."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TICK_S = 0.005
_MOST_S = 0.02  # counted per tick; the rest of a longer tick is a pause of the machine


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yields a function: seconds since the block began, without those in which this process paused.

    A thread counts them, which is paused when the process is. It counts too little while other
    threads compute without releasing the GIL; for computation there is `time.process_time`.
    """
    counted = 0.0
    stopping = threading.Event()

    def count() -> None:
        nonlocal counted
        last = time.monotonic()
        while not stopping.wait(_TICK_S):
            now = time.monotonic()
            counted += min(now - last, _MOST_S)
            last = now

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield lambda: counted
    finally:
        stopping.set()
        thread.join()
