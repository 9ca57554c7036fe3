"""A client that disconnects before it has the answer."""

import asyncio
from typing import Any

import httpx
from fastapi import FastAPI

from tests.patience import PATIENCE_S


async def send_and_disconnect(
    app: FastAPI, sent: httpx.Request, began: asyncio.Event | None = None
) -> int | None:
    """The status that the application sent in spite of the disconnect, if any.

    The client disconnects after `began`; without it, in the middle of its body.
    """
    body = sent.read()
    messages = [{"type": "http.request", "body": body, "more_body": began is None}]
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        if began is not None:
            await began.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async with asyncio.timeout(PATIENCE_S):
        await app(scope_of(sent), receive, send)
    return statuses[0] if statuses else None


def scope_of(sent: httpx.Request) -> dict[str, Any]:
    """The ASGI scope of the request, as a server builds it."""
    path = sent.url.path
    return {
        "type": "http",
        "method": sent.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.lower(), value) for name, value in sent.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": ("test", 80),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }
