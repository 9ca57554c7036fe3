"""Free memory of this machine; returns that of the C library to the system."""

import ctypes
import gc
import logging
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)


def give_back() -> None:
    """Returns freed memory, which glibc would keep, to the system; takes at most 0.2 s.

    Threads that allocate are blocked meanwhile, so call it while no request is in progress.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # a C library other than glibc
        logger.debug("no_malloc_trim")


def free_bytes() -> int:
    """The memory that processes can still get: of the machine, and of a container with a limit."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError, ValueError):  # no cgroup of version 2, or "max"
        limit, used = (Path("/sys/fs/cgroup", f"memory.{name}") for name in ("max", "current"))
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free
