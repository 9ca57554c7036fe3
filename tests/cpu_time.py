"""CPU time relative to the speed of the machine, so that a slow one fails no test.

A process's own CPU time leaves out what else the machine does, but not how fast it is: one and the
same loop took 2 times as long on one machine as on another, and up to 4 times at other hours.
"""

import gc
import time
from collections.abc import Callable
from functools import cache


def cpu_units(run: Callable[[], object]) -> float:
    """CPU time of this process in `run`, in units of a loop of some 50 ms timed around it."""
    _forget()
    before_s = _timed(_loop)
    taken_s = _timed(run)
    return taken_s / max(before_s, _timed(_loop))


def check_cpu_units(run: Callable[[], object], below: float) -> None:
    """Fails where `run` takes `below` units or more.

    Times the loop again only for what takes so many units of this machine at its fastest, before
    `run` or when this process first asked.
    """
    _forget()
    fastest_s = min(_fastest_loop(), _timed(_loop))
    taken_s = _timed(run)
    if taken_s >= below * fastest_s:
        units = taken_s / max(_timed(_loop), _timed(_loop))
        assert units < below, units


def _forget() -> None:
    """Collect the objects of all tests before, which took up to 16 units, and freeze the others,
    so that the next call is spared them, too."""
    gc.collect()
    gc.freeze()


@cache
def _fastest_loop() -> float:
    return min(_timed(_loop) for _ in range(3))


def _timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _loop() -> int:
    words = {f"{number:06}": str(number * number) for number in range(50_000)}
    return sum(len(word) for key, word in words.items() if key[-1] in word)
