"""A cable that delays frames: a pair of TAP devices, and a thread that carries frames between them.

For machines without the kernel's `netem`.
"""

import fcntl
import os
import select
import struct
import threading
import time
from collections import deque
from contextlib import suppress

_TUNSETIFF = 0x400454CA
_TAP_WITHOUT_HEADER = 0x0002 | 0x1000


def _tap(name: str) -> int:
    """The file descriptor of a new device, which lives as long as it is open."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP_WITHOUT_HEADER))
    return device


class SlowCable:
    """Two network devices; each frame takes `delay_s` from one to the other."""

    def __init__(self, one: str, other: str, delay_s: float) -> None:
        self._ends = (_tap(one), _tap(other))
        self._delay_s = delay_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _carry(self) -> None:
        one, other = self._ends
        to = {one: other, other: one}
        under_way: deque[tuple[float, int, bytes]] = deque()
        while not self._over.is_set():
            wait_s = max(under_way[0][0] - time.monotonic(), 0) if under_way else 0.1
            readable, _, _ = select.select(self._ends, [], [], wait_s)
            for end in readable:
                with suppress(OSError):  # the device is down
                    under_way.append(
                        (time.monotonic() + self._delay_s, to[end], os.read(end, 65536))
                    )
            while under_way and under_way[0][0] <= time.monotonic():
                _, end, frame = under_way.popleft()
                with suppress(OSError):
                    os.write(end, frame)
