"""Memory that is returned to the system while its content stays."""

import mmap
import sys
from pathlib import Path

import pytest

from models.memory import LEAST_CLEARED, give_back_cleared

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory maps of Linux")

PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


def test_cleared_memory_is_returned_and_written_memory_stays() -> None:
    size = 3 * LEAST_CLEARED
    with mmap.mmap(-1, size, flags=PRIVATE) as memory:
        memory.write(bytes(size))
        middle = size // 2
        memory[middle] = 7
        memory[-1] = 9
        before = resident_bytes()
        returned = give_back_cleared()
        assert returned >= 2 * LEAST_CLEARED
        assert before - resident_bytes() > LEAST_CLEARED
        assert memory[middle] == 7
        assert memory[-1] == 9
        assert memory[:middle] == bytes(middle)  # read again, as zeros
        memory[0] = 1  # and written again
        assert memory[0] == 1


def test_short_runs_of_zeros_are_left_alone() -> None:
    size = 2 * LEAST_CLEARED
    with mmap.mmap(-1, size, flags=PRIVATE) as memory:
        memory.write(bytes(size))
        for place in range(0, size, LEAST_CLEARED // 4):
            memory[place] = 1
        before = resident_bytes()
        give_back_cleared()
        assert before - resident_bytes() < LEAST_CLEARED // 4
