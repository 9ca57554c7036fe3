"""The gateway's own HTTP server: uvicorn on a socket that replicas of a host share."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

# A client that reads nothing for this long loses its connection: after an application gives up on
# a stalled client, only the kernel can end the socket, and by default it never does.
TCP_USER_TIMEOUT_MS = 20_000
BACKLOG = 2048
DRAIN_S = 30
WS_MAX_MESSAGE_BYTES = 1 << 20


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process belongs to Ray."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    """Serves an ASGI app until `stop`."""

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        self._socket = listening_socket(host, port)
        self._server = _Server(
            uvicorn.Config(
                cast(Any, app),  # uvicorn and Starlette spell the same type differently
                loop="none",  # the replica's own
                http="httptools",
                ws="websockets-sansio",
                ws_ping_interval=30.0,
                ws_ping_timeout=10.0,
                ws_max_size=WS_MAX_MESSAGE_BYTES,
                # Audio does not compress, and a small frame could inflate to a huge one.
                ws_per_message_deflate=False,
                access_log=False,  # it would log queries, which may hold keys
                log_config=None,
                server_header=False,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=DRAIN_S,
                lifespan="on",
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; useful when 0 was asked for."""
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Returns when connections are accepted. Raises RuntimeError when the app fails."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the HTTP server ended while it started")
            await asyncio.sleep(0.01)

    @property
    def serving(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Accepts no more, lets requests end for DRAIN_S seconds, then cuts them."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound TCP socket whose port other replicas of this host may share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "SO_REUSEPORT"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; accepted sockets inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
