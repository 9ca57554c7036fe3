"""Subclasses of uvicorn's HTTP and WebSocket protocols with limits that uvicorn lacks.

They use private parts of uvicorn: see `deployments.compat`.
"""

import asyncio
import resource
import secrets
from typing import Any

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from api.http.errors import ApiError, error_response
from telemetry import metrics

RESERVED_FILES = 256  # file descriptors for databases, models, decoders and uploads
HEAD_S = 10.0  # timeout for the head of a request, such as a handshake
PINGS = 100  # limit per client within PING_WINDOW_S
PING_WINDOW_S = 5.0
FRAGMENTS = 65_536  # limit per message
PONG_ROOM_BYTES = 1 << 20  # unread data of a client, above which pongs are dropped


def connection_limits() -> tuple[int, int]:
    """The maximum of served connections, and of those beyond that are refused with a response.

    They keep file descriptors free: without any, requests of open connections could not reach the
    database.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = 1 << 20
    served = max(files - RESERVED_FILES, files // 2)
    return served, (files - served) // 4


def refusal(scope: Scope) -> Response:
    """The 503 response to a connection beyond the limit."""
    error = ApiError(
        "overloaded",
        "too many connections are open; try again in a moment",
        headers={"Connection": "close", "X-Request-Id": secrets.token_hex(16)},
    )
    return error_response(error, HTTPConnection(scope))


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of a connection beyond the limit."""
    await refusal(scope)(scope, receive, send)


class HttpConnection(HttpToolsProtocol):
    """Closes a connection without a request head within HEAD_S, or beyond the limit."""

    _head_timer: asyncio.TimerHandle | None = None
    _has_room = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        served, answered = connection_limits()
        beyond = len(self.connections) - served
        if beyond > 0:
            metrics.overload_refusals.labels("connection").inc()
            self._has_room, self.app = False, refuse
        if beyond > answered:
            transport.abort()
            return
        self._head_timer = self.loop.call_later(HEAD_S, transport.abort)

    def handle_websocket_upgrade(self) -> None:
        if self._has_room:
            super().handle_websocket_upgrade()
            return
        answer = refusal({**self.scope, "path": ""})  # uvicorn has not set the path yet
        head = b"".join(b"%b: %b\r\n" % pair for pair in answer.raw_headers)
        self.transport.write(b"HTTP/1.1 503 Service Unavailable\r\n%b\r\n" % head)
        self.transport.write(bytes(answer.body))
        self.transport.close()

    def on_message_begin(self) -> None:
        if self._head_timer is None:  # not the first request of the connection
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Limits control frames and fragments, and frees the socket of a stalled client.

    A connection that fails by the client's fault is not an error of the service: the application
    gets the disconnect at once, and nothing is logged.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._window_began = 0.0
        self._pings = 0

    def handle_ping(self) -> None:
        now = self.loop.time()
        if now - self._window_began > PING_WINDOW_S:
            self._window_began, self._pings = now, 0
        self._pings += 1
        if self._pings > PINGS:
            self._refuse("too many pings")
            return
        pong = b"".join(self.conn.data_to_send())
        # RFC 6455 5.5.3 requires an answer to the latest ping only.
        if self.transport.get_write_buffer_size() < PONG_ROOM_BYTES:
            self.transport.write(pong)

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= FRAGMENTS:
            self._refuse("too many fragments")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:  # uvicorn would log a traceback
                self._refuse("text that is not UTF-8", CloseCode.INVALID_DATA)
                return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._report_disconnect()

    def eof_received(self) -> None:
        super().eof_received()
        self._report_disconnect()

    def _report_disconnect(self) -> None:
        """Reports it at once; uvicorn does so only after all written data is sent."""
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.ABNORMAL_CLOSURE})

    async def run_asgi(self) -> None:
        await super().run_asgi()
        if not self.writable.is_set():
            # The client does not read, so closing would never complete.
            self.transport.abort()

    async def send(self, message: ASGISendEvent) -> None:
        await self.writable.wait()
        if self.close_sent and self.initial_response is None:
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True  # by a response other than the upgrade

    def _refuse(self, reason: str, code: CloseCode = CloseCode.POLICY_VIOLATION) -> None:
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(code, reason)
        self.handle_parser_exception()
