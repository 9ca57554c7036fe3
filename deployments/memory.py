"""What the C library keeps of freed memory."""

import ctypes
import gc
import logging

logger = logging.getLogger(__name__)


def give_back() -> None:
    """Returns freed memory to the system, which glibc else keeps for later; 0.2 s at most.

    Other threads wait for it when they allocate, so call it before anybody waits for an answer.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library than glibc
        logger.debug("no_malloc_trim")
