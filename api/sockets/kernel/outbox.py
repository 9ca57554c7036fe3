"""The send queue of one socket, bounded: a client that reads slowly slows the work down."""

import asyncio
from collections import deque

from api.sockets.kernel.conversation import SessionEnded


class Outbox:
    """Text frames in order. `put` waits while more than `limit_bytes` are queued: backpressure."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._frames: deque[str] = deque()
        self.waiting_bytes = 0
        self._closed = False
        self._changed = asyncio.Event()  # wakes `take`
        self._room = asyncio.Event()  # wakes `put`
        self._room.set()

    async def put(self, frame: str) -> None:
        """Raises SessionEnded once `close` was called."""
        while not self._room.is_set() and not self._closed:
            await self._room.wait()
        self.put_now(frame)

    def put_now(self, frame: str) -> None:
        """Without waiting, for the few frames of the kernel itself. Raises SessionEnded."""
        if self._closed:
            raise SessionEnded
        self._frames.append(frame)
        self.waiting_bytes += len(frame)  # base64 and keys are ASCII; close enough for the rest
        if self.waiting_bytes > self._limit:
            self._room.clear()
        self._changed.set()

    async def take(self) -> str | None:
        """The next frame; None when it is closed and empty."""
        while not self._frames:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        frame = self._frames.popleft()
        self.waiting_bytes -= len(frame)
        if self.waiting_bytes <= self._limit:
            self._room.set()
        return frame

    def clear(self) -> None:
        """Drops what was not taken yet."""
        self._frames.clear()
        self.waiting_bytes = 0
        self._room.set()

    def close(self) -> None:
        """Nothing more can be put; what is there can still be taken."""
        self._closed = True
        self._room.set()
        self._changed.set()
