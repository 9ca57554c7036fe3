"""Returns freed memory to the system, and to the GPU."""

import ctypes
import gc
import logging
import sys
from contextlib import suppress

logger = logging.getLogger(__name__)


def give_back() -> None:
    """Returns freed memory that glibc and PyTorch would keep; takes at most 0.2 s.

    Blocks threads that allocate, so call it while no request is in progress.
    """
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        with suppress(RuntimeError):  # a GPU that has failed
            torch.cuda.empty_cache()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # a C library other than glibc
        logger.debug("no_malloc_trim")
