"""Routes of sockets, and the checks before a socket is accepted."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from api.http.addresses import client_address
from api.http.context import context_of
from api.http.errors import ApiError, error_response, to_api_error
from api.http.middleware import access_log
from api.http.routing import BEARER, credential_of, require_scopes, services_of
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import Conversation, Service, json_text, now_s
from api.sockets.kernel.registry import SocketRegistry
from api.sockets.kernel.session import SecretSession, SocketSession
from configs.settings import BRAND
from pipelines.accounts.authentication import Scope
from pipelines.billing.billing import to_usd
from telemetry import metrics, tracing
from telemetry.tracing import request_id

logger = logging.getLogger(__name__)

CREDENTIAL_ERRORS = ("unauthorized", "insufficient_scope")


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """The protocol of the sockets at one path, and the keys that open them."""

    service: Service  # label in metrics
    open: Callable[[SocketSession, Services], Conversation]
    scopes: tuple[Scope, ...]  # scopes that the key needs
    visitors: bool = False  # whether browser tokens open the socket
    scopes_of: Callable[[WebSocket, SecretSession | None], tuple[Scope, ...]] | None = None
    """Checks the options of a handshake, and returns which of the `scopes` they need."""
    schemes: tuple[str, ...] = BEARER  # schemes of the header that may hold the key
    key_queries: tuple[str, ...] = ("apiKey",)  # query parameters that may hold the key
    greets: bool = True  # sends the hello messages
    has_get: bool = True  # answers a plain GET, for health checks; False if another route does
    # Browsers cannot set headers. They may offer `subprotocol`, and a second one made of
    # `key_prefix` and the key.
    subprotocol: str | None = None
    key_prefix: str = ""
    key_after: tuple[str, ...] = ()  # the subprotocol offered after one of these is the key
    takes_secrets: bool = False  # client secrets open the socket, too
    takes_key_in_path: bool = False  # the last part of the path may be the key
    key_in: Callable[[str], str] | None = None  # finds the key in the first message


def socket_routes(path: str, route: SocketRoute) -> list[BaseRoute]:
    serve = partial(_serve, path=path, route=route)
    routes: list[BaseRoute] = [WebSocketRoute(path, serve)]
    if route.has_get:
        routes.append(Route(path, _ok, methods=["GET"]))
    if route.takes_key_in_path:
        routes.append(WebSocketRoute(f"{path}/{{key}}", serve))
    return routes


def unknown_sockets() -> WebSocketRoute:
    """Returns a route that answers 404 to any path. It must be the last route."""
    return WebSocketRoute("/{path:path}", _unknown)


async def _ok(request: Request) -> Response:
    return PlainTextResponse("ok")


async def _unknown(websocket: WebSocket) -> None:
    await _refuse(websocket, ApiError("not_found", "there is no WebSocket at this path"))


def _key_of(websocket: WebSocket, route: SocketRoute) -> str:
    """Finds the key in the path, query, header or subprotocols; "" if there is none."""
    if route.takes_key_in_path and (key := websocket.path_params.get("key")):
        return str(key)
    in_query = filter(None, map(websocket.query_params.get, route.key_queries))
    key = next(in_query, "") or credential_of(websocket, route.schemes)
    offered: list[str] = websocket.scope["subprotocols"]
    if not key and route.subprotocol and route.key_prefix:
        keys = (name for name in offered if name.startswith(route.key_prefix))
        key = next(keys, "").removeprefix(route.key_prefix)
    if not key and len(offered) > 1 and offered[0] in route.key_after:
        key = offered[1]
    return key


async def _serve(websocket: WebSocket, path: str, route: SocketRoute) -> None:
    websocket.scope["path"] = path  # for logs, which must not have a key in the path
    tracing.annotate({"http.request.method": "GET", "http.route": path}, name=f"GET {path}")
    started = time.perf_counter()
    services = services_of(websocket)
    sockets, platform = services.infrastructure.sockets, services.platform
    turn = context_of(websocket).turn
    first: str | None = None
    try:
        async with asyncio.timeout(sockets.limits.handshake_s):
            key = _key_of(websocket, route)
            if not key and route.key_in is not None:
                first = await _first_message(websocket, route)
                key = route.key_in(first)
            await turn.take()
            if sockets.draining:
                raise ApiError("unavailable", "this server is stopping")
            takes_secrets = route.takes_secrets
            principal = await platform.request_limits.authenticate(
                websocket, sockets.authenticator, key, route.schemes, takes_secrets=takes_secrets
            )
            secret_session = await platform.client_secrets.configuration(principal)
            scopes = route.scopes
            if route.scopes_of is not None:
                scopes = route.scopes_of(websocket, secret_session)
            require_scopes(sockets.authenticator, principal, scopes, visitors=route.visitors)
            credit = await platform.billing.credit(principal.workspace_id)
            lease = await sockets.admit(principal)
            turn.leave(is_end=True)
    except TimeoutError:
        timeout = ApiError("unavailable", "the key could not be checked")
        if first is None and websocket.application_state is WebSocketState.CONNECTED:
            timeout = ApiError("unauthorized", "no message with a key came in time")
        await _refuse(websocket, timeout)
        return
    except Exception as error:  # every failure before the upgrade is an HTTP answer
        refusal = to_api_error(error)
        # Browsers hide the status of a refused upgrade from pages, but show them close codes.
        if route.greets and "origin" in websocket.headers and refusal.code in CREDENTIAL_ERRORS:
            with suppress(OSError):
                await _accept(websocket, route)
        await _refuse(
            websocket, refusal, close_codes.KEY_REVOKED if route.greets else close_codes.POLICY
        )
        return
    try:
        if first is None:
            await _accept(websocket, route)
        session = SocketSession(
            websocket,
            principal,
            key,
            scopes,
            sockets.limits,
            lambda session: route.open(session, services),
            secret_session,
        )
        hello = _hello(session, route.service, credit) if route.greets else []
        work = session.run(*hello, first=first)
        await registered(sockets, session, work, service=route.service, path=path, started=started)
        tracing.annotate({"http.response.status_code": 101})
    except OSError:
        pass  # the client disconnected in the handshake
    finally:
        await lease.release()


async def registered(
    sockets: SocketRegistry,
    session: SocketSession,
    work: Coroutine[Any, Any, None],
    *,
    service: Service,
    path: str,
    started: float,
) -> None:
    """Runs a session, with its metrics and log. `started` is the handshake's perf_counter time."""
    sockets.add(session)
    try:
        with metrics.sockets_live.labels(service).track_inprogress():
            await work
    finally:
        sockets.discard(session)
        seconds = time.perf_counter() - started
        metrics.socket_seconds.labels(service).observe(seconds)
        metrics.socket_closes.labels(service, close_codes.label_of(session.close_code)).inc()
        tracing.annotate({"antiphon.close_code": session.close_code})
        access_log.info(
            "socket",
            extra={
                "path": path,
                "code": session.close_code,
                "seconds": round(seconds, 3),
                "received": session.received,
                "sent": session.sent,
            },
        )


async def _accept(websocket: WebSocket, route: SocketRoute) -> None:
    supported = {route.subprotocol, *route.key_after}
    await websocket.accept(
        next((name for name in websocket.scope["subprotocols"] if name in supported), None),
        headers=[(b"x-request-id", (request_id.get() or "").encode())],
    )


async def _first_message(websocket: WebSocket, route: SocketRoute) -> str:
    """Accepts a socket without a key, and returns its first message; "" if that is not text. Raises
    ApiError if the client's address has too many such sockets."""
    admission = services_of(websocket).infrastructure.admission
    leave = admission.enter_unknown(client_address(websocket))
    try:
        await _accept(websocket, route)
        return (await websocket.receive()).get("text") or ""
    finally:
        leave()


async def _refuse(
    websocket: WebSocket, error: ApiError, close_code: int = close_codes.POLICY
) -> None:
    """Answers with an HTTP error in place of the upgrade. A socket that was accepted already gets
    the body of that answer as a message, and is closed."""
    context_of(websocket).turn.leave(is_end=True)
    await services_of(websocket).infrastructure.admission.turns.delay_refusal()
    metrics.socket_refusals.labels(error.code).inc()
    failure = error.code if error.status >= 500 else ""
    tracing.annotate({"http.response.status_code": error.status}, error=failure)
    response = error_response(error, websocket)
    response.headers["X-Request-Id"] = request_id.get() or ""
    access_log.info(
        "request", extra={"path": websocket.scope["path"], "method": "GET", "status": error.status}
    )
    if websocket.application_state is WebSocketState.CONNECTED:
        with suppress(OSError, WebSocketDisconnect, RuntimeError):  # the client has disconnected
            await websocket.send_text(bytes(response.body).decode())
            await websocket.close(close_code, error.code)
        return
    await websocket.receive()  # the connect message
    with suppress(OSError):
        await websocket.send_denial_response(response)


def _hello(session: SocketSession, service: Service, credit: int) -> list[str]:
    established = {
        "service": service,
        "user_id": session.principal.user_id,
        "credit_balance": to_usd(credit),
        "workspace": session.principal.workspace,
    }
    messages: list[dict[str, object]] = [
        {"connecting": True, "message": f"Connecting to {BRAND}", "timestamp": now_s()},
        {"connection_established": established},
    ]
    return [json_text(message) for message in messages]
