"""A queue from a thread with callbacks to an event loop, which takes all that is ready."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

Chunk = dict[str, Any]


class ChunkStream:
    """Chunks of one answer. The thread never waits for the loop; a slow loop takes more at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ready = asyncio.Event()
        self._signalled = False  # a wake-up is scheduled: one serves many chunks
        self._chunks: deque[Chunk] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False

    def run(self, generate: Callable[[Chunk, Callable[[Chunk], bool]], None], body: Chunk) -> None:
        """In the thread: calls `generate(body, callback)` to its end or until the stream closes."""
        try:
            if not self._closed:
                generate(body, self._push)
        except Exception as error:  # of any kind: `take` raises it in the loop
            self._error = error
        finally:
            self._ended = True
            self._wake()

    def close(self) -> None:
        """In the loop: the next callback tells the thread to stop."""
        self._closed = True

    async def take(self) -> list[Chunk]:
        """In the loop: waits for chunks and takes all that are ready; none at the end.

        Raises what `run` caught.
        """
        while True:
            await self._ready.wait()
            self._ready.clear()
            # In this order: a chunk that comes after the next line wakes the loop again.
            self._signalled = False
            ended = self._ended
            if chunks := [self._chunks.popleft() for _ in range(len(self._chunks))]:
                if ended:
                    self._ready.set()  # for the call that finds the end
                return chunks
            if self._error is not None:
                raise self._error
            if ended:
                return []

    def _push(self, chunk: Chunk) -> bool:
        """In the thread. True stops the generation."""
        self._chunks.append(chunk)
        self._wake()
        return self._closed

    def _wake(self) -> None:
        if self._signalled:
            return
        self._signalled = True
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop is closed: there is no consumer
            self._closed = True
