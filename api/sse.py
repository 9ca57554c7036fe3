"""Server-sent events: a response that notices a client who leaves, and the lines of a chat."""

import json
import time
from asyncio import FIRST_COMPLETED, Task, create_task, wait
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import anyio
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.dialect import openai_error
from api.errors import ApiError
from models.llm.base import FinishReason, Usage

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
KEEP_ALIVE_AFTER_S = 15.0


class EventStream(Response):
    """Sends each item of `frames` at once, and a comment line after each 15 idle seconds.

    A client that leaves closes `frames`, also while the next item is awaited.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache, no-transform"
        self.headers["x-accel-buffering"] = "no"  # else nginx holds the stream back
        self._frames = frames
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_when_left, receive, tasks.cancel_scope)
                tasks.start_soon(self._keep_alive, send)
                await self._send_all(send)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._frames.aclose()

    async def _send_all(self, send: Send) -> None:
        self._sent_at = time.monotonic()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for frame in self._frames:
            self._sent_at = time.monotonic()
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        while True:
            idle_s = time.monotonic() - self._sent_at
            if idle_s >= KEEP_ALIVE_AFTER_S:
                self._sent_at = time.monotonic()
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                continue
            await anyio.sleep(KEEP_ALIVE_AFTER_S - idle_s)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves before.

    For work between the reading of the body and the answer. Raises ClientDisconnect.
    """
    working: Task[T] = create_task(work)
    leaving = create_task(_wait_until_left(receive))
    try:
        await wait((working, leaving), return_when=FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect()
        return working.result()
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await wait((working,))  # its cleaning up ends before the request does


async def _wait_until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel_when_left(receive: Receive, scope: anyio.CancelScope) -> None:
    await _wait_until_left(receive)
    scope.cancel()


class CompletionFrames:
    """The lines of one streamed answer.

    Each has what this interface names and, beside it, all that OpenAI's clients look for on every
    line: one choice whose delta has a string.
    """

    def __init__(self, completion_id: str, created: int, model: str) -> None:
        head = {
            "id": completion_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._head = json.dumps(head)[:-1]
        # Only the text changes from piece to piece, so the rest is written once.
        self._before = f'data: {self._head}, "choices": [{{"index": 0, "delta": {{"content": '
        self._after = '}, "finish_reason": null}]}\n\n'

    def begin(self, chat_id: str | None) -> bytes:
        """The line with the role; for a new chat it also names the chat."""
        named: dict[str, Any] = {"type": "chat_id", "chat_id": chat_id} if chat_id else {}
        return self._line({"role": "assistant", "content": ""}, **named)

    def content(self, text: str) -> bytes:
        # json escapes all but ASCII: some clients break lines at U+2028 and its like.
        return f"{self._before}{json.dumps(text)}{self._after}".encode()

    def finish(self, reason: FinishReason) -> bytes:
        return self._line({"content": ""}, reason)

    def done(self, response_time_ms: int, usage: Usage) -> bytes:
        """The last line but one; a usage line of its own would be lost in some clients."""
        return self._line(
            {"content": ""},
            type="done",
            response_time_ms=response_time_ms,
            usage=usage_body(usage),
        )

    def _line(
        self, delta: dict[str, str], finish_reason: FinishReason | None = None, **more: Any
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        tail = json.dumps({"choices": [choice], **more})[1:]
        return f"data: {self._head}, {tail}\n\n".encode()


def error_frame(error: ApiError) -> bytes:
    """What ends a stream that failed; `error` is an object here, as all OpenAI clients need it."""
    body = openai_error(error.status, error.error, error.message, error.param)
    return f"data: {json.dumps({'type': 'error', **body})}\n\n".encode()


def usage_body(usage: Usage) -> dict[str, int]:
    """Usage as both forms of the answer show it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
