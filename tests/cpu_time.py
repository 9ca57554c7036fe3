"""CPU time relative to the speed of the machine, so that a slow one fails no test.

A process's own CPU time leaves out what else the machine does, but not how fast it is: one and the
same loop took 2 times as long on one machine as on another, and up to 4 times at other hours.
"""

import gc
import time
from collections.abc import Callable


def cpu_units(run: Callable[[], object]) -> float:
    """CPU time of this process in `run`, in units of a loop of some 50 ms timed around it.

    Collecting the objects of all tests before it, which took up to 16 units, is not counted; they
    stay frozen, so that the next call is spared it, too.
    """
    gc.collect()
    gc.freeze()
    before_s = _timed(_loop)
    taken_s = _timed(run)
    return taken_s / max(before_s, _timed(_loop))


def _timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _loop() -> int:
    words = {f"{number:06}": str(number * number) for number in range(50_000)}
    return sum(len(word) for key, word in words.items() if key[-1] in word)
