"""A bounded queue between two tasks, in which a slow reader slows the writer down."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from api.sockets.kernel.conversation import SessionEnded

Item = TypeVar("Item")


class BoundedQueue(Generic[Item]):
    """A queue that is full while the sizes of its items exceed `limit` (backpressure)."""

    def __init__(self, limit: int, size: Callable[[Item], int]) -> None:
        """Creates an empty queue; `size` returns the size of an item in units of `limit`."""
        self.waiting = 0  # total size of the items
        self._limit = limit
        self._size = size
        self._items: deque[Item] = deque()
        self._closed = False
        self._changed = asyncio.Event()  # wakes `take`
        self._room = asyncio.Event()  # wakes `wait_for_room`
        self._room.set()

    async def wait_for_room(self) -> None:
        """Waits until the queue is not full, or is closed."""
        while not self._room.is_set():
            await self._room.wait()

    def put(self, item: Item) -> None:
        """Adds an item without waiting. Raises SessionEnded once `close` was called."""
        if self._closed:
            raise SessionEnded
        self._items.append(item)
        self.waiting += self._size(item)
        if self.waiting > self._limit:
            self._room.clear()
        self._changed.set()

    async def take(self) -> Item | None:
        """Waits for the next item; returns None once the queue is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        item = self._items.popleft()
        self.waiting -= self._size(item)
        if self.waiting <= self._limit:
            self._room.set()
        return item

    def clear(self) -> None:
        self._items.clear()
        self.waiting = 0
        self._room.set()

    def close(self) -> None:
        """Allows no more items to be put. Items in the queue can still be taken."""
        self._closed = True
        self._room.set()
        self._changed.set()
