"""Returns memory that was freed, or cleared and never used, to the system and to the GPU."""

import ctypes
import gc
import logging
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeVar

from models.errors import EngineLost

logger = logging.getLogger(__name__)
PartT = TypeVar("PartT")

BLOCK = 2**21
ZEROS = bytes(BLOCK)
LEAST_CLEARED = 2**26  # shortest run, in bytes; heaps of other threads have none so long


class LoadedNetwork:
    """A library's network, whose memory `close` frees even if requests refer to it. Blocking."""

    _network: Any  # None after `close`

    def close(self) -> None:
        """Frees the memory, the GPU's too; later calls raise EngineLost."""
        self._network = None
        give_back()  # the library's modules refer to each other

    def _loaded(self) -> Any:
        return still_loaded(self._network)


def still_loaded(part: PartT | None) -> PartT:
    """Return a part of a model, or raise EngineLost if `close` has replaced it by None."""
    if part is None:
        raise EngineLost("the model was unloaded")
    return part


def forget_frames(error: BaseException | None) -> None:
    """Drops the tracebacks of an error and of its causes: their frames hold models and tensors. A
    thread, such as an executor's, may hold the error a moment longer than its caller."""
    if error is not None:
        error.__traceback__ = None
        forget_frames(error.__cause__)
        forget_frames(error.__context__)


def give_back() -> None:
    """Returns freed memory that glibc and PyTorch would keep; takes at most 0.2 s. Blocks threads
    that allocate, so call it while no request is in progress."""
    gc.collect()
    if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
        with suppress(RuntimeError):  # a GPU that has failed
            torch.cuda.empty_cache()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # a C library other than glibc
        logger.debug("no_malloc_trim")


def give_back_cleared() -> int:
    """Return pages of zeros to the system, which supplies zeroed ones at their next use.

    llama.cpp clears the whole cache of a context at the start, which makes each page of it
    resident: 448 MiB for four slots of 4,096 tokens of a model with 1.5 billion parameters, of
    which a chat of 100 tokens uses 3 MiB. This takes 0.1 s. Call it while no request is in
    progress: data that another thread writes into a run of zeros meanwhile would be lost.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    returned = 0
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError as error:  # a sandbox without /proc
        logger.debug("cleared_memory_kept", extra={"error": str(error)})
        return 0
    try:
        for start, end in _anonymous_regions():
            for first, size in _cleared_runs(memory, start, end):
                if libc.madvise(first, size, mmap.MADV_DONTNEED) == 0:
                    returned += size
    finally:
        os.close(memory)
    return returned


def _anonymous_regions() -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each private, writable, anonymous region that can hold a run."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        addresses, rights, _, _, inode, *_ = line.split()
        start, end = (int(address, 16) for address in addresses.split("-"))
        if rights == "rw-p" and inode == "0" and end - start >= LEAST_CLEARED:
            yield start, end


def _cleared_runs(memory: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the address and the size of each run of blocks of zeros."""
    blocks = range(-(-start // BLOCK) * BLOCK, end - BLOCK + 1, BLOCK)
    for is_cleared, run in groupby(blocks, key=lambda block: _is_cleared(memory, block)):
        addresses = list(run)
        size = len(addresses) * BLOCK
        if is_cleared and size >= LEAST_CLEARED:
            yield addresses[0], size


def _is_cleared(memory: int, block: int) -> bool:
    try:
        # A few bytes reveal most blocks in use.
        return os.pread(memory, 64, block) == ZEROS[:64] and os.pread(memory, BLOCK, block) == ZEROS
    except OSError:  # unmapped meanwhile
        return False
