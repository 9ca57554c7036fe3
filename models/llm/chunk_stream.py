"""Streams the chunks of an answer from a thread of llama.cpp to an event loop."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

Chunk = dict[str, Any]
"""A chunk of an answer, in the form of llama.cpp's chat route or of its route for raw prompts."""


def delta_of(choice: dict[str, Any]) -> dict[str, Any]:
    """Returns the delta of a choice, which has only a text after a raw prompt."""
    return choice["delta"] if "delta" in choice else {"content": choice["text"]}


class ChunkStream:
    """Queue of the chunks of one answer, from a thread with callbacks to an event loop. The thread
    never waits for the loop; a slow loop takes more chunks at once. After the first text the loop
    is woken for text at most every `delivery_s`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, delivery_s: float = 0.0) -> None:
        self._loop = loop
        self._delivery_s = delivery_s
        self._has_text = False
        self._woken_at = 0.0
        self._ready = asyncio.Event()
        self._signalled = False  # a wake-up of the loop is scheduled, for all chunks until then
        self._chunks: deque[Chunk] = deque()
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False

    def run(self, generate: Callable[[Chunk, Callable[[Chunk], bool]], None], body: Chunk) -> None:
        """Runs `generate(body, callback)` until it ends or the stream is closed; in the thread."""
        try:
            if not self._closed:
                generate(body, self._push)
        except Exception as error:  # `take` raises it in the loop
            self._error = error
        finally:
            self._ended = True
            self._wake()

    def close(self) -> None:
        """Stops the thread at its next callback; called in the loop."""
        self._closed = True

    async def take(self) -> list[Chunk]:
        """Waits for chunks and takes all ready ones, none at the end. Raises what `run` caught."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            # The order matters: a chunk pushed after the next line wakes the loop again.
            self._signalled = False
            ended = self._ended
            if chunks := [self._chunks.popleft() for _ in range(len(self._chunks))]:
                if ended:
                    self._ready.set()  # wakes the call that returns the end
                return chunks
            if self._error is not None:
                raise self._error
            if ended:
                return []

    def _push(self, chunk: Chunk) -> bool:
        """Queues a chunk, in the thread; True stops the generation."""
        self._chunks.append(chunk)
        has_text = any(delta_of(choice).get("content") for choice in chunk.get("choices", ()))
        is_due = time.monotonic() - self._woken_at >= self._delivery_s
        if is_due or not (has_text and self._has_text):
            self._wake()
        self._has_text |= has_text
        return self._closed

    def _wake(self) -> None:
        if self._signalled:
            return
        self._signalled = True
        self._woken_at = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop is closed, so there is no consumer
            self._closed = True
