"""The outermost middleware: request id, access log, metrics, HEAD, admission control, errors."""

import asyncio
import logging
import re
import secrets
import time
from contextlib import nullcontext, suppress
from functools import cache

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.addresses import client_address, widest_network
from api.http.admission import REQUEST, AdmissionControl
from api.http.context import RequestContext, begin_context
from api.http.errors import ApiError, error_response, to_api_error
from api.http.ignored_fields import HEADER, SEPARATOR
from api.http.limits import add_rate_headers
from api.http.turns import Turn
from models.errors import EngineStopped
from telemetry import metrics, tracing
from telemetry.tracing import request_id

access_log = logging.getLogger("api.access")

_SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SLASHES = re.compile("//+")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LINGER_S = 2.0  # time to discard the rest of a body before the connection is closed
DISCARD_PAUSE_S = 0.02  # pause after each discarded read: a client may send 1 GB/s
SITES = ("/guide/", "/console/")  # static sites, whose relative links depend on a trailing slash
QUIET_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/-/healthz"})


class RequestFrame:
    """Outermost middleware; pure ASGI, which costs microseconds and does not buffer streams."""

    def __init__(self, app: ASGIApp, admission: AdmissionControl) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        answer = self._answer if scope["type"] == "http" else self._serve_socket
        scope = {**scope, "path": _routed(scope["path"])}
        is_quiet = scope["path"] in QUIET_PATHS
        token = request_id.set(_request_id(scope))
        try:
            with nullcontext() if is_quiet else tracing.received(scope["headers"]):
                await answer(scope, receive, send)
        finally:
            request_id.reset(token)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = self._begin(scope, client_address(HTTPConnection(scope)))
        with self._admission.turns.working():
            try:
                await self._app(scope, receive, send)
            finally:
                context.turn.leave(is_end=True)

    def _begin(self, scope: Scope, address: str) -> RequestContext:
        turn = Turn(self._admission.turns, widest_network(address))
        return begin_context(scope, turn, self._admission.slow_clients)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        identity = request_id.get() or ""
        status = 0
        closes = False  # the response ends the connection
        has_body = True  # parts of the request's body have not been read
        end: Message | None = None  # the last part of the response, held during `_linger`
        method = scope["method"]
        is_head = method == "HEAD"
        if is_head:  # answered like GET, without the body
            scope = {**scope, "method": "GET"}
        address = client_address(Request(scope))
        context = self._begin(scope, address)
        metrics.http_requests_live.inc()

        async def receive_framed() -> Message:
            nonlocal has_body
            message = await receive()
            has_body = message.get("more_body", False)
            return message

        async def send_framed(message: Message) -> None:
            nonlocal status, closes, end
            if message["type"] == "http.response.start":
                context.turn.leave(is_end=True)
                status = message["status"]
                if status >= 400:
                    context.place.leave()  # first, since its own place would delay the refusal
                    await self._admission.turns.delay_refusal()
                headers = MutableHeaders(raw=message["headers"])
                if "content-length" in headers:  # a complete answer; a stream keeps its place
                    context.place.begin_sending()
                closes = headers.get("connection") == "close"
                headers["X-Request-Id"] = identity
                add_rate_headers(headers, context.rate_window)
                if context.ignored:
                    headers[HEADER] = SEPARATOR.join(context.ignored)
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            if closes and has_body and message["type"] == "http.response.body":
                end, message = message, {**message, "more_body": True}
            await send(message)

        try:
            if scope["path"] not in QUIET_PATHS:
                context.leave_unknown = self._admission.enter_unknown(address)
                context.at_end(self._admission.enter(REQUEST))
            await context.turn.take()
            if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                raise ApiError("validation_error", "the address holds U+0000")
            await self._app(scope, receive_framed, send_framed)
        # The last resort: every other failure is a 500. A server that stops cancels its requests.
        except (Exception, asyncio.CancelledError) as error:
            if status:  # too late for an error answer: the server closes the connection
                raise
            failure = error if isinstance(error, Exception) else EngineStopped()
            response = error_response(to_api_error(failure), Request(scope))
            await response(scope, receive_framed, send_framed)
        finally:
            elapsed_s = time.perf_counter() - started
            metrics.http_requests_live.dec()
            context.release()
            _count(method if method in _METHODS else "other", scope, status, elapsed_s)
            if scope["path"] not in QUIET_PATHS:
                access_log.info(
                    "request",
                    extra={
                        "method": method,
                        "path": scope["path"],  # without the query, which may hold a key
                        "status": status,
                        "ms": round(elapsed_s * 1000, 2),
                    },
                )
        if end is not None:
            await _linger(receive)
            await send({**end, "body": b""})


def _routed(path: str) -> str:
    """Strips trailing and repeated slashes: many clients append `/chat/completions` to a base URL
    that ends with a slash. Paths of static sites keep them, and so do those of probes, which
    proxies block by exact path."""
    single = _SLASHES.sub("/", path)
    plain = single.rstrip("/") or "/"
    if plain in QUIET_PATHS:
        return path
    return single if single.startswith(SITES) else plain


async def _linger(receive: Receive) -> None:
    """Discards the rest of a body, since closing with unread bytes resets the connection, and the
    response may be lost: proxies answered 502 to 43 of 80 refused uploads of 75 MB."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (await receive()).get("more_body", False):
                await asyncio.sleep(DISCARD_PAUSE_S)


def _count(method: str, scope: Scope, status: int, elapsed_s: float) -> None:
    """Counts a request by its route's pattern, so that the number of series is bounded."""
    route = getattr(scope.get("route"), "path", "none")  # set in the scope by the router
    counter, histogram = _series(method, route, status)
    counter.inc()
    histogram.observe(elapsed_s)
    tracing.annotate(
        {"http.request.method": method, "http.route": route, "http.response.status_code": status},
        name=f"{method} {route}",
        error=str(status) if status >= 500 else "",
    )


@cache  # looking up a series takes longer than counting
def _series(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    counter = metrics.http_requests.labels(method, route, status)
    return counter, metrics.http_request_seconds.labels(route)


def _request_id(scope: Scope) -> str:
    """Returns the client's request id if it is short and plain, else a new one."""
    client_id = Headers(scope=scope).get("x-request-id", "")
    return client_id if _SANE_ID.fullmatch(client_id) else secrets.token_hex(16)
