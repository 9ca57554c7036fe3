"""The gateway's HTTP server: uvicorn on a port that the replicas of a host share."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Sequence
from functools import partial
from ipaddress import ip_network
from typing import Any, Protocol, cast

import uvicorn
from starlette.types import ASGIApp

from api.http.turns import Turns
from configs.load import load_yaml
from configs.schema.platform import AdmissionConfig
from deployments.cluster.compat import (
    close_connections_after_response,
    close_listeners,
    new_protocol,
    without_signal_handlers,
)
from deployments.gateway.connections import ClientLimits, HttpConnection
from deployments.gateway.socket_connections import WebSocketConnection

logger = logging.getLogger(__name__)

# A client that reads nothing for this long is disconnected. After the application has closed the
# connection of a stalled client, only the kernel can end the socket; by default it never does.
TCP_USER_TIMEOUT_MS = 20_000
# Unsent bytes that the kernel buffers for one client. The default is megabytes: a client that reads
# at playback speed takes minutes for them, which is too long for a send with a timeout.
NOT_SENT_BYTES = 128 << 10
_TCP_NOTSENT_LOWAT = 25  # in `socket` since Python 3.12
BACKLOG = 2048
# The phases of a stop. Their sum is less than the gateway's `graceful_shutdown_timeout_s` (60 s),
# and `deployments.main` waits longer than that.
DRAIN_S = 30.0  # time in which requests and sessions may end by themselves
LAST_S = 4.0  # time for the error lines of the requests that still run
SETTLE_S = 6.0  # time for saves, settlements and traces
STORE_S = 3.0  # time in which the history stores speech
WS_MAX_MESSAGE_BYTES = 1 << 20


class Listener(Protocol):
    """A server of a replica."""

    @property
    def serving(self) -> bool:
        """Whether the server has started and not ended."""
        ...

    async def stop(self, drain: Awaitable[None] | None = None) -> None:
        """Stop accepting, await `drain`, which ends the sessions, and close the rest."""
        ...


class HttpListener:
    """Serves an ASGI app until `stop`."""

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        trusted_proxies: Sequence[str] = (),
        admission: AdmissionConfig | None = None,
        turns: Turns | None = None,
    ) -> None:
        """Create a server; `turns` are those of the app, and `admission` defaults to the
        configuration's."""
        admission = admission or load_yaml(AdmissionConfig, "admission")
        self._http = partial(
            HttpConnection,
            limits=ClientLimits(
                admission,
                turns or Turns(admission.requests),
                tuple(map(ip_network, trusted_proxies)),
            ),
        )
        self._socket = listening_socket(host, port)
        server = uvicorn.Server(
            uvicorn.Config(
                cast(Any, app),  # uvicorn and Starlette have different names for the type
                loop="none",  # uses the replica's loop
                http=cast(Any, self._http),
                ws=WebSocketConnection,
                ws_ping_interval=30.0,
                ws_ping_timeout=10.0,
                ws_max_size=WS_MAX_MESSAGE_BYTES,
                # Audio does not compress, and a small frame could inflate to a huge one.
                ws_per_message_deflate=False,
                access_log=False,  # it would log query strings, which may contain keys
                log_config=None,
                # At lower levels, it logs query strings of WebSockets, and a line for each
                # malformed request, of which strangers can send any number.
                log_level="error",
                server_header=False,
                # By default uvicorn trusts X-Forwarded-For from any process on this machine.
                proxy_headers=bool(trusted_proxies),
                forwarded_allow_ips=list(trusted_proxies),
                timeout_keep_alive=5,
                timeout_graceful_shutdown=round(DRAIN_S),
                lifespan="on",
            )
        )
        self._server = without_signal_handlers(server)
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Return the port of the server; useful if 0 was configured."""
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Return when the server accepts connections. Raises RuntimeError if the app fails."""
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._task.done():
                await self._task
                raise RuntimeError("the HTTP server ended while it started")
            await asyncio.sleep(0.01)

    @property
    def serving(self) -> bool:
        return self._task is not None and not self._task.done()

    async def stop(self, drain: Awaitable[None] | None = None) -> None:
        """Stop accepting, await `drain`, and end the requests. Requests may run for DRAIN_S in all;
        those still running then have LAST_S to fail, and the rest are aborted. `drain` ends the
        WebSocket sessions, which the server would otherwise abort at once."""
        loop = asyncio.get_running_loop()
        until = loop.time() + DRAIN_S
        if self._server.started:
            close_connections_after_response(self._server)
            late = waiting_connections(self._socket)
            # At once, so that other replicas on the port get the new connections.
            close_listeners(self._server)
            for connection in late:
                await loop.connect_accepted_socket(
                    lambda: new_protocol(self._server, self._http), connection
                )
        if drain is not None:
            await drain
        left_s = max(0.0, until - loop.time()) + LAST_S
        self._server.config.timeout_graceful_shutdown = round(left_s)
        self._server.should_exit = True
        if self._task is not None:
            await self._task
        # The server does not wait for cancelled requests, which still charge for what was sent.
        if tasks := self._server.server_state.tasks:
            await asyncio.wait(tuple(tasks), timeout=LAST_S / 2)
        self._socket.close()


def waiting_connections(listener: socket.socket) -> list[socket.socket]:
    """Accept the queued connections, which the kernel would reset when `listener` is closed."""
    connections: list[socket.socket] = []
    with contextlib.suppress(OSError):  # BlockingIOError: there are no more
        while True:
            connection, _ = listener.accept()
            connection.setblocking(False)
            connections.append(connection)
    return connections


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a bound TCP socket whose port other replicas of this host can share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # asyncio sets this only on sockets with an explicit protocol, other event loops never. Without
    # it, the second of two events waits 40 ms for the client's acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Accepted sockets inherit both.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    listener.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, NOT_SENT_BYTES)
    listener.bind((host, port))
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
