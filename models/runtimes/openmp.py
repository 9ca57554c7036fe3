"""Adapts barriers of libgomp, GNU's OpenMP library, to the load on the cores."""

import ctypes
import os
import threading
import time
from pathlib import Path

LOOK_S = 0.25  # interval of measurements; ticks are 10 ms
STALE_S = 2.0  # age at which a measurement is outdated
KEPT_S = 30.0  # how long a decision is kept while the engine is idle
# Cores that others may use beside the threads. On two cores with two threads, another process that
# wants a core gets 0.6 of it while they spin, and all of it while they sleep.
SPIN_UNTIL, SLEEP_UNTIL = 0.55, 0.65
_IDLE, _IOWAIT, _STOLEN = 3, 4, 7  # columns of /proc/stat; the others up to 7 are busy time


class AdaptiveBarriers:
    """Lets libgomp's threads spin at barriers while cores are free, and sleep while they are not.

    A token has hundreds of barriers. On two idle cores, spinning threads (300,000 times, about a
    millisecond, by default) made 75 tokens/s, and sleeping threads 53. Beside a process that keeps
    one of the cores busy they made 22 and 36, and with four streams 28 and 46. libgomp reads its
    settings only once, but its threads spin at most a hundred times while there are more of them
    than cores (GOMP_SPINCOUNT in its manual). So a second team of idle threads is kept while others
    use the cores."""

    def __init__(self, threads: int) -> None:
        """Create the switch; `threads` is the number of threads of parallel regions."""
        self._cpus = os.sched_getaffinity(0)
        self._free = len(self._cpus) - threads  # cores that the threads leave to others
        try:
            self._gomp = ctypes.CDLL("libgomp.so.1")
            used_seconds(self._cpus)
        except OSError:  # another OpenMP
            self._cpus = set()
        self._lock = threading.Lock()
        self._last = (-STALE_S, 0.0, 0.0)
        self._wakes: threading.Event | None = None  # ends the second team

    @property
    def sleeps(self) -> bool:
        """Whether threads sleep at barriers."""
        return self._wakes is not None

    def look(self) -> None:
        """Measures and decides, at most every LOOK_S; call it often, in any thread."""
        if not self._cpus or time.monotonic() - self._last[0] < LOOK_S:
            return
        if self._lock.acquire(blocking=False):
            try:
                self._decide()
            finally:
                self._lock.release()

    def _decide(self) -> None:
        now = time.monotonic()
        used_s = used_seconds(self._cpus)
        own_s = time.process_time()
        before, used_before_s, own_before_s = self._last
        self._last = now, used_s, own_s
        if now - before < STALE_S:
            others = (used_s - used_before_s - (own_s - own_before_s)) / (now - before)
            bound = SLEEP_UNTIL if self.sleeps else SPIN_UNTIL
            self._let_sleep(others > self._free + bound)

    def _let_sleep(self, sleeps: bool) -> None:
        if self._wakes is not None and not sleeps:
            self._wakes.set()
            self._wakes = None
        elif self._wakes is None and sleeps:
            self._wakes = threading.Event()
            threading.Thread(target=self._keep_team, args=(self._wakes,), daemon=True).start()

    def _keep_team(self, wakes: threading.Event) -> None:
        """Keeps the second team until woken; its threads end with this one."""
        nothing = self._gomp.omp_get_num_threads  # any function without an effect
        self._gomp.GOMP_parallel(nothing, None, len(self._cpus) + 1, 0)
        while not wakes.wait(KEPT_S):
            with self._lock:
                if time.monotonic() - self._last[0] > KEPT_S and self._wakes is wakes:
                    self._let_sleep(False)


def used_seconds(cpus: set[int]) -> float:
    """Returns the seconds since boot in which the CPUs were busy or stolen. Raises OSError where
    there is no /proc/stat."""
    total = 0.0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *columns = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cpus:
            ticks = [int(column) for column in columns[: _STOLEN + 1]]
            total += sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]
    return total / os.sysconf("SC_CLK_TCK")
