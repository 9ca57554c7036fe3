"""A subclass of uvicorn's HTTP protocol with limits that uvicorn lacks. It uses private parts of
uvicorn: see `deployments.cluster.compat`."""

import asyncio
import resource
import secrets
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from itertools import chain
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from api.http.addresses import network_of, networks_of, parse_address
from api.http.errors import CLOSE, ApiError, error_response
from api.http.middleware import DISCARD_PAUSE_S, LINGER_S
from api.http.streaming import LOOK_S, has_left
from api.http.turns import Turns
from configs.schema.platform import AdmissionConfig
from deployments.gateway.socket_connections import WebSocketConnection
from telemetry import metrics

RESERVED_FILES = 256  # file descriptors for databases, models, decoders and uploads
HEAD_S = 10.0  # timeout for the head of a request, such as a handshake
REST_S = 60.0  # timeout for the rest of a body that no route reads
# httptools joins the pieces of a header in quadratic time: 61 s for 100 MB.
HEAD_BYTES = 65_536
HEAD_TOO_LARGE = ("headers_too_large", f"the head has over {HEAD_BYTES} bytes")
EXTENSIONS_TOO_LONG = ("validation_error", "chunk extensions and trailers are too long")
HEADERS = 100
URL_BYTES = 8192
PIPELINED = 16  # requests that wait for the response to the previous one


def connection_limits() -> tuple[int, int]:
    """Return how many connections are served, and how many beyond these get a response. The limits
    keep some file descriptors free, so that requests can still use the database."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        files = 1 << 20
    served = max(files - RESERVED_FILES, files // 2)
    return served, (files - served) // 4


def refusal(connection: HTTPConnection) -> Response:
    """Return the 503 response to a connection beyond the limit."""
    message = "too many connections are open; try again in a moment"
    return _closing(ApiError("overloaded", message), connection)


def _closing(error: ApiError, connection: HTTPConnection) -> Response:
    response = error_response(error, connection)
    response.headers.update({**CLOSE, "X-Request-Id": secrets.token_hex(16)})
    return response


def _connection_with(headers: list[tuple[bytes, bytes]]) -> HTTPConnection:
    """Return a connection without a path, which uvicorn sets late."""
    return HTTPConnection({"type": "http", "path": "", "headers": headers})


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """The ASGI application of connections beyond the limit."""
    await refusal(HTTPConnection(scope))(scope, receive, send)


def _reset(transport: asyncio.Transport) -> None:
    """Close a connection so that its client sees that the response is cut off, even in HTTP/1.0."""
    raw = transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def answer_unframed(
    cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send
) -> None:
    """Run an application for an HTTP/1.0 client, which cannot read chunks. A response without a
    Content-Length ends with its connection (RFC 9112, 6.3); uvicorn would send it in chunks. If it
    is cut off, it ends with a reset, since the client would otherwise think it complete."""
    is_open = False  # whether the length of the response is unknown

    async def send_unframed(message: Message) -> None:
        nonlocal is_open
        if message["type"] == "http.response.start":
            is_open = "content-length" not in Headers(raw=message["headers"])
            if is_open:
                cycle.chunked_encoding = False
        elif is_open:
            # uvicorn subtracts the length of each body that it sends; several may be waiting.
            cycle.expected_content_length += len(message.get("body", b""))
        await send(message)

    try:
        await app(scope, receive, send_unframed)
    finally:
        if is_open and not cycle.response_complete and not cycle.transport.is_closing():
            _reset(cycle.transport)


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of clients' connections, shared by all connections of a listener."""

    config: AdmissionConfig
    turns: Turns
    proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    by_address: Counter[str] = field(default_factory=Counter)  # open connections

    def address_of(self, host: str) -> str | None:
        """Return the key of `by_address`; None for the loopback and proxies, which many clients
        share."""
        address = parse_address(host)
        if (
            address is None
            or address.is_loopback
            or any(address in network for network in self.proxies)
        ):
            return None
        return network_of(host)


class _BadHead(Exception):
    """Ends the parser; the response is in `HttpConnection._refusal`."""


class HttpConnection(HttpToolsProtocol):
    """Refuses large, slow and ambiguous heads, connections beyond the limits, and slow readers.

    A reader is slow if it takes less than `send_bytes_per_s` over `send_timeout_s`, or if responses
    have waited for it for `send_total_s`. Its connection is aborted, so that the application gets a
    disconnect, which stops its work.

    While requests wait in a pipeline, uvicorn reads nothing: it would notice the end of the
    connection late, and report it only to the last request.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    _hang_up_timer: asyncio.TimerHandle | None = None
    _running: RequestResponseCycle | None = None  # the running request of the pipeline
    _has_room = True
    _answered = False  # `_answer` has answered: whatever the client still sends is discarded
    _pauses_discarding = False  # whether reading pauses between two pieces of discarded input
    _in_head = True  # true from the end of a request to the end of the next head
    _overhead = 0  # bytes since the last byte of a body: heads, chunk extensions, trailers
    _unsent = 0  # bytes, when the reader was last checked
    _watched_since = 0.0  # time of the loop, when the reader was last checked
    _waited_s = 0.0  # seconds of waiting for the reader, in the current request
    _refusal: ApiError | None = None
    _address: str | None = None

    def __init__(self, *args: Any, limits: ClientLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        served, answered = connection_limits()
        beyond = len(self.connections) - served
        self._address = self._limits.address_of(self.client[0] if self.client else "")
        if self._address is not None:
            most = min(self._limits.config.connections_per_address, served // 2)
            for network, times in networks_of(self._address):
                self._limits.by_address[network] += 1
                allowed = min(most * times, served // 2)
                beyond = max(beyond, self._limits.by_address[network] - allowed)
            answered = min(answered, most)
        if beyond > 0:
            metrics.overload_refusals.labels("connection").inc()
            self._has_room, self.app = False, refuse
        if beyond > answered:
            transport.abort()
            return
        self._head_timer = self.loop.call_later(HEAD_S, self._abort_slow, "head")

    def data_received(self, data: bytes) -> None:
        if self._answered:
            self._pause_discarding()
            return
        room = len(data)
        if self._in_head:
            room = HEAD_BYTES - self._overhead
            if self._head_timer is None:  # this is not the first request of the connection
                self._head_timer = self.loop.call_later(HEAD_S, self._abort_slow, "head")
        self._overhead += min(len(data), room)
        super().data_received(data[:room])
        if self._overhead >= HEAD_BYTES:
            self._refusal = ApiError(*HEAD_TOO_LARGE if self._in_head else EXTENSIONS_TOO_LONG)
            self.send_400_response(self._refusal.message)
        elif data[room:] and not self.transport.is_closing():
            if self.transport.get_protocol() is self:  # it has not become a WebSocket since
                self.data_received(data[room:])

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused, in the envelope of errors, and close the connection.
        While the response to another request is being sent, only close the connection, because the
        client would read this answer as that response."""
        error = self._refusal or ApiError("validation_error", "the request is not valid HTTP")
        cycle = self.cycle
        runs = cycle is not None and not cycle.response_complete
        if self._answered or self.transport.is_closing():
            return
        if self.pipeline or (runs and (self._in_head or cycle.response_started)):
            self._abort()
        else:
            self._answer(_closing(error, _connection_with(self.headers or [])))

    def _answer(self, response: Response) -> None:
        head = b"".join(b"%b: %b\r\n" % pair for pair in response.raw_headers)
        self._disconnect_application()
        self.transport.write(b"%b%b\r\n" % (STATUS_LINE[response.status_code], head))
        self.transport.write(bytes(response.body))
        # If the connection were closed at once, the kernel would answer further data with a reset,
        # and the client would lose the response.
        self.transport.write_eof()
        self._stop_head_timer()
        self._head_timer = self.loop.call_later(LINGER_S, self._abort)
        self._answered = True

    def handle_websocket_upgrade(self) -> None:
        if not self._has_room:
            self._answer(refusal(_connection_with(self.headers)))
            return
        super().handle_websocket_upgrade()
        upgraded = self.transport.get_protocol()
        if isinstance(upgraded, WebSocketConnection):
            upgraded.on_lost = self._leave_address
            upgraded.turns = self._limits.turns

    def _unsupported_upgrade_warning(self) -> None:
        self.cycle.keep_alive = False  # httptools parses nothing after the request

    def on_message_begin(self) -> None:
        self._waited_s = 0.0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > URL_BYTES:
            self._bad_head("url_too_long", f"the address has over {URL_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: uvicorn would add it to the headers of the running request
        if len(self.headers) >= HEADERS:
            self._bad_head("headers_too_large", f"the head has over {HEADERS} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1") or self.parser.get_method() == b"CONNECT":
            self._bad_head("validation_error", "the service supports HTTP/1.1, and is not a proxy")
        hosts, codings = 0, []
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                codings.append(value.lower())
        if hosts > 1 or (not hosts and version == "1.1"):
            self._bad_head("validation_error", "Host: must be sent exactly once")
        # Request smuggling: a proxy may see the end of such a body elsewhere (RFC 9112 6.1).
        if codings and (codings != [b"chunked"] or version == "1.0"):
            self._bad_head(
                "validation_error", "Transfer-Encoding: only chunked is supported, in HTTP/1.1"
            )
        # The bytes of a pipelined head, which arrived together with an earlier request.
        if sum(map(len, chain.from_iterable(self.headers))) > HEAD_BYTES:
            self._bad_head(*HEAD_TOO_LARGE)
        if len(self.pipeline) >= PIPELINED:
            self._bad_head("validation_error", "too many requests wait on this connection")
        self._stop_head_timer()
        self._in_head, self._overhead = False, 0
        super().on_headers_complete()
        if self.pipeline and self._hang_up_timer is None:
            self._look_for_hang_up()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if cycle.scope["http_version"] == "1.0":
            app = partial(answer_unframed, cycle, app)
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if self.cycle.response_complete:
            self._pause_discarding()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_head_timer()
        self._in_head, self._overhead = True, 0
        super().on_message_complete()
        cycle = self.cycle
        if cycle is not None and cycle.scope is self.scope and cycle.response_complete:
            # The response did not wait for this body; uvicorn has no timeout for the rest of it.
            self._head_timer = self.loop.call_later(HEAD_S, self._abort_slow, "head")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_head and self.cycle.response_complete:  # the client still sends a body
            self._stop_head_timer()
            self._head_timer = self.loop.call_later(REST_S, self._abort_slow, "body")
        self._watch_tail()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_reader_timer()
        # Shorter waits count too: a reader may stay just above the minimum pace.
        self._waited_s += self.loop.time() - self._watched_since
        if self._waited_s > self._limits.config.slow_clients.send_total_s:
            self._abort_slow("response")
        elif self.cycle.response_complete:
            self._watch_tail()

    def eof_received(self) -> None:
        self._disconnect_application()  # the transport closes

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_reader_timer()
        self._leave_address()
        self._disconnect_application()
        super().connection_lost(exc)

    def _bad_head(self, code: str, message: str) -> None:
        self._refusal = ApiError(code, message)
        raise _BadHead

    def _pause_discarding(self) -> None:
        if not self._pauses_discarding and not self.transport.is_closing():
            self._pauses_discarding = True
            self.transport.pause_reading()
            self.loop.call_later(DISCARD_PAUSE_S, self._resume_discarding)

    def _resume_discarding(self) -> None:
        self._pauses_discarding = False
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _watch_tail(self) -> None:
        """Watch the reader until the last bytes of a response are sent. They are too few to pause
        writing, and a closed connection stays open until then."""
        if self._reader_timer is None and self.transport.get_write_buffer_size():
            self._watch_reader()

    def _watch_reader(self) -> None:
        self._stop_reader_timer()
        config = self._limits.config.slow_clients
        self._unsent = self.transport.get_write_buffer_size()
        self._watched_since = self.loop.time()
        due = self._watched_since + config.send_timeout_s
        self._reader_timer = self.loop.call_at(due, self._check_reader, due)

    def _check_reader(self, due: float) -> None:
        config = self._limits.config.slow_clients
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._reader_timer = None
            return
        sent = self._unsent - unsent
        self._waited_s += config.send_timeout_s
        is_slow = sent < config.send_bytes_per_s * config.send_timeout_s
        # A late event loop, as in a stopped process, is not the reader's fault: it could not send.
        if self.loop.time() < due + config.send_timeout_s / 2 and (
            is_slow or self._waited_s > config.send_total_s
        ):
            self._abort_slow("response")
        else:
            self._watch_reader()

    def _abort_slow(self, kind: str) -> None:
        if kind != "head" or self.headers is not None:  # otherwise the connection has no request
            metrics.slow_clients.labels(kind).inc()
        if kind == "response":
            self._disconnect_application()
            _reset(self.transport)
        else:
            self._abort()

    def _abort(self) -> None:
        self._disconnect_application()
        self.transport.abort()

    def _disconnect_application(self) -> None:
        """Report a disconnect to the application, and drop what it still sends. uvicorn reports a
        disconnect only when the transport has closed; until then, a write is an error with a
        traceback in the log."""
        cycle = self._running
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            self.flow.resume_writing()

    def _look_for_hang_up(self) -> None:
        self._hang_up_timer = None
        if self.pipeline and has_left(self.transport):
            self._abort()
        elif self.pipeline:
            self._hang_up_timer = self.loop.call_later(LOOK_S, self._look_for_hang_up)

    def _leave_address(self) -> None:
        address, self._address = self._address, None
        for network, _ in networks_of(address) if address is not None else ():
            self._limits.by_address[network] -= 1
            if not self._limits.by_address[network]:
                del self._limits.by_address[network]

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
