"""Returns the freed memory of the C library to the system."""

import ctypes
import gc
import logging

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
