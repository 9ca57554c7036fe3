"""Streamed responses with backpressure, and work that stops when its client disconnects."""

import json
import logging
import select
import time
from asyncio import FIRST_COMPLETED, BaseTransport, Task, create_task, wait
from base64 import b64encode
from collections.abc import AsyncGenerator, Coroutine
from contextlib import closing, suppress
from typing import Any, Protocol, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.http.errors import openai_error, to_api_error
from pipelines.temporary_files import TemporaryFile

logger = logging.getLogger(__name__)

T = TypeVar("T")
C = TypeVar("C", contravariant=True)

KEEP_ALIVE_AFTER_S = 15.0
LOOK_S = 0.5  # interval of `has_left` checks while nothing is read from the client
BASE64_STEP = 3 * 2**16  # bytes encoded at once, in 0.2 ms; a multiple of 3 needs no padding
_HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)  # POLLRDHUP exists only on Linux


class Closable(Protocol):
    """Work that can be stopped; stopping it twice is harmless."""

    async def aclose(self) -> object: ...


class FrameWriter(Protocol[C]):
    """Converts the items of a stream to frames of a response; its methods block."""

    def write(self, item: C) -> bytes:
        """Returns the frame of an item; empty if it waits for more items."""
        ...

    def finish(self) -> list[bytes]:
        """Returns the last frames of a successful stream; empty ones are not sent."""
        ...

    def fail(self, error: Exception) -> bytes:
        """Returns the last frame of a failed stream. Raises CutShort if there is none."""
        ...


class CutShort(Exception):
    """Failure of a stream whose format cannot carry an error; the message is for the log."""


class StreamedResponse(Response):
    """Sends each item of `frames` at once; a slow reader pauses `frames` (backpressure).

    If `frames` raises CutShort, the connection is closed before the end of the response, so that no
    client mistakes it for complete.

    When the client disconnects, `frames` is closed, even while its next item is awaited. `source`
    is closed, too, since a generator that never started cannot close it. In formats with an empty
    item, `keep_alive` is sent after every 15 idle seconds.
    """

    keep_alive: bytes | None = None

    @classmethod
    def documented(cls, model: Any, description: str) -> dict[int | str, dict[str, Any]]:
        """Returns the `responses` of a route with this media type. `model` describes a line of
        NDJSON, or the whole JSON answer; events have no schema."""
        return {200: {"model": model, "description": description, "content": {cls.media_type: {}}}}

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        source: Closable | None = None,
        media_type: str | None = None,
    ) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache, no-transform"
        self.headers["x-accel-buffering"] = "no"  # otherwise nginx buffers the stream
        self._frames = frames
        self._source = source
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
                if self.keep_alive is not None:
                    tasks.start_soon(self._keep_alive, send, self.keep_alive)
                await self._send_all(send)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._frames.aclose()
                if self._source is not None:
                    await self._source.aclose()

    async def _send_all(self, send: Send) -> None:
        self._sent_at = time.monotonic()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for frame in self._frames:
                self._sent_at = time.monotonic()
                await send({"type": "http.response.body", "body": frame, "more_body": True})
                # A send also ends when the connection is cut: no further item is taken, or charged.
                await anyio.lowlevel.checkpoint_if_cancelled()
        except CutShort as cut:
            logger.warning("stream_cut", extra={"error": str(cut)})
            return  # the server closes the connection, since the answer has no end
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send, line: bytes) -> None:
        while True:
            idle_s = time.monotonic() - self._sent_at
            if idle_s >= KEEP_ALIVE_AFTER_S:
                self._sent_at = time.monotonic()
                await send({"type": "http.response.body", "body": line, "more_body": True})
                continue
            await anyio.sleep(KEEP_ALIVE_AFTER_S - idle_s)


class NdjsonStream(StreamedResponse):
    """Newline-delimited JSON."""

    media_type = "application/x-ndjson"


class Base64Json(StreamedResponse):
    """JSON object with one long field in base64, which is read and encoded while it is sent."""

    media_type = "application/json"

    def __init__(self, name: str, data: TemporaryFile, other_fields: dict[str, Any]) -> None:
        """Takes over `data`, and closes it at the end. `other_fields` must not be empty."""
        self._head = f'{{"{name}":"'.encode()
        self._tail = f'",{json.dumps(other_fields, separators=(",", ":"))[1:]}'.encode()
        super().__init__(self._frames_of(data))
        self._data = data
        length = len(self._head) + 4 * -(-data.size // 3) + len(self._tail)
        self.headers["content-length"] = str(length)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with closing(self._data):
            await super().__call__(scope, receive, send)

    async def _frames_of(self, data: TemporaryFile) -> AsyncGenerator[bytes, None]:
        blocks = data.blocks(BASE64_STEP)
        frame = self._head + b64encode(next(blocks, b""))
        for block in blocks:
            yield frame
            frame = b64encode(block)
        yield frame + self._tail


class EventStream(StreamedResponse):
    """Server-sent events, with a comment line after every 15 idle seconds."""

    media_type = "text/event-stream"
    keep_alive = b": keep-alive\n\n"


# json.dumps escapes all but ASCII: some clients break lines at U+2028 and similar characters.
def json_line(message: dict[str, Any]) -> bytes:
    return f"{json.dumps(message)}\n".encode()


def event_frame(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


def named_frame(event: dict[str, Any]) -> bytes:
    """Returns an event whose type is also its name."""
    return f"event: {event['type']}\n".encode() + event_frame(event)


def error_frame(error: Exception) -> bytes:
    """Returns the last event of a failed stream; its `error` is an object, as in OpenAI's."""
    return event_frame({"type": "error", **openai_error(to_api_error(error))})


async def encode_frames(
    first: C, rest: AsyncGenerator[C, None], writer: FrameWriter[C]
) -> AsyncGenerator[bytes, None]:
    """Yields the frames of a stream whose first item is ready; the caller closes `rest`."""
    try:
        if frame := await anyio.to_thread.run_sync(writer.write, first):
            yield frame
        async for item in rest:
            if frame := await anyio.to_thread.run_sync(writer.write, item):
                yield frame
        for frame in filter(None, await anyio.to_thread.run_sync(writer.finish)):
            yield frame
    except Exception as error:  # the response has begun, so only its format can report it
        with suppress(Exception):
            await rest.athrow(error)  # a result that cannot be encoded is not charged
        yield writer.fail(error)


def has_left(transport: BaseTransport) -> bool:
    """Whether the client has closed its side of the connection, even if bytes are still unread. The
    socket is polled, since the event loop reports the end only after those bytes."""
    if transport.is_closing():
        return True
    poll = select.poll()
    poll.register(transport.get_extra_info("socket"), _HANG_UP)
    return bool(poll.poll(0))


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work`, or cancels it if the client disconnects first. Raises ClientDisconnect. Use it
    between reading the body and starting the response."""
    working: Task[T] = create_task(work)
    leaving = create_task(_wait_for_disconnect(receive))
    try:
        await wait((working, leaving), return_when=FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect()
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            with anyio.CancelScope(shield=True):
                await wait((working,))  # its cleanup ends before the request does


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    await _wait_for_disconnect(receive)
    scope.cancel()
