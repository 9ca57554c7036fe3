"""A listener over a small application, and raw bytes to it."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from configs.load import load_yaml
from configs.schema.platform import AdmissionConfig
from deployments.gateway.listener import HttpListener
from tests.patience import PATIENCE_S

PIECE = bytes(1 << 16)


async def seen(request: Request) -> Response:
    """What the application sees of a request, and how many there were."""
    request.app.state.seen += 1
    body = await request.body()
    return JSONResponse({"body": body.decode("latin-1"), "headers": list(request.headers)})


async def early(request: Request) -> Response:
    """An answer that does not wait for the body."""
    request.app.state.seen += 1
    return JSONResponse({})


async def late(request: Request) -> Response:
    """An answer that does not wait for the body either, but takes a while."""
    await asyncio.sleep(0.05)
    request.app.state.seen += 1
    return JSONResponse({})


async def whole(request: Request) -> Response:
    """A response in one part, larger than any buffer of a socket."""
    return Response(PIECE * 400)


async def short(request: Request) -> Response:
    """A response for which writing never pauses."""
    return Response(PIECE[:40_000])


async def stream(request: Request) -> Response:
    """The same in many parts; counts those whose response ended."""

    async def parts() -> AsyncIterator[bytes]:
        try:
            for _ in range(400):
                yield PIECE
        finally:
            request.app.state.ended += 1

    return StreamingResponse(parts())


async def failing(request: Request) -> Response:
    """A response that fails after its first part."""

    async def parts() -> AsyncIterator[bytes]:
        yield PIECE[:100]
        await asyncio.sleep(0.05)
        raise RuntimeError("the model is gone")

    return StreamingResponse(parts())


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text)


def small_app() -> Starlette:
    routes = [
        WebSocketRoute("/echo", echo),
        Route("/seen", seen, methods=["GET", "POST"]),
        Route("/early", early, methods=["GET", "POST"]),
        Route("/late", late, methods=["GET", "POST"]),
        Route("/whole", whole),
        Route("/short", short),
        Route("/stream", stream),
        Route("/failing", failing),
    ]
    made = Starlette(routes=routes)
    made.state.seen = made.state.ended = 0
    return made


def admission(**slow: float) -> AdmissionConfig:
    """The configuration with other times for slow clients."""
    config = load_yaml(AdmissionConfig, "admission")
    changed = config.slow_clients.model_copy(update=slow)
    return config.model_copy(update={"slow_clients": changed})


@asynccontextmanager
async def serving(
    app: ASGIApp, config: AdmissionConfig | None = None
) -> AsyncIterator[HttpListener]:
    """A listener over the application."""
    listener = HttpListener(app, "127.0.0.1", 0, ("10.0.0.0/8",), config)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


def exchange(port: int, *parts: bytes) -> bytes:
    """Sends the parts one after another; all that the server sends until it closes.

    Blocking: to be called in a thread.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        try:
            for part in parts:
                client.sendall(part)
                time.sleep(0.01 if len(parts) < 100 else 0)
            while piece := client.recv(1 << 16):
                received += piece
        except ConnectionError:  # the server closed before it had read all
            pass
    return received
