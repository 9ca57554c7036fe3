"""Returns freed memory of the C library to the system."""

import ctypes
import gc
import logging

logger = logging.getLogger(__name__)


def give_back() -> None:
    """Returns freed memory to the system, which glibc otherwise keeps; takes 0.2 s at most.

    Threads that allocate wait for it, so call it while no request is in progress.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library than glibc
        logger.debug("no_malloc_trim")
