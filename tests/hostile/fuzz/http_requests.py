"""The requests that the gateway's HTTP server reads from bytes, without a socket."""

import asyncio
from functools import cache, partial
from typing import Any

import uvicorn

from api.http.turns import Turns
from configs.load import load_yaml
from configs.schema.platform import AdmissionConfig
from deployments.gateway.connections import ClientLimits, HttpConnection
from deployments.gateway.socket_connections import WebSocketConnection

TURNS = 12  # of the event loop after each piece: enough for a request that does not wait

Read = tuple[str, str, list[tuple[bytes, bytes]], bytes]
"""Kind or method, path, headers and body of a request."""


class _Transport(asyncio.Transport):
    """Takes everything that is written, and counts as closed after the protocol closed it."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._protocol: Any = None
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data is not None

    def write_eof(self) -> None: ...

    def close(self) -> None:
        self._closed = True

    def abort(self) -> None:
        self._closed = True

    def is_closing(self) -> bool:
        return self._closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol


async def read_requests(pieces: list[bytes]) -> list[Read]:
    """The whole requests in the bytes of one connection, in order."""
    seen: list[Read] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            seen.append((scope["type"], scope["path"], scope["headers"], b""))
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                seen.append((scope["method"], scope["path"], scope["headers"], body))
                break
        else:
            return  # the client has disconnected
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        app,
        http=partial(HttpConnection, limits=_limits()),  # type: ignore[arg-type]
        ws=WebSocketConnection,
        log_config=None,
        lifespan="off",
    )
    config.load()
    state = uvicorn.server.ServerState()
    transport = _Transport()
    transport.set_protocol(HttpConnection(config, state, {}, limits=_limits()))
    transport.get_protocol().connection_made(transport)
    for piece in pieces:
        if transport.is_closing():
            break
        transport.get_protocol().data_received(piece)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    transport.get_protocol().connection_lost(None)
    for task in state.tasks:
        task.cancel()
    await asyncio.gather(*state.tasks, return_exceptions=True)
    return seen


@cache
def _limits() -> ClientLimits:
    return ClientLimits(load_yaml(AdmissionConfig, "admission"), Turns(1))
