"""The routes of a socket's path, and the checks before a socket is accepted."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

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
from api.sockets.kernel.session import SecretSession, SocketSession
from configs.settings import BRAND
from pipelines.accounts.authentication import Scope
from pipelines.billing.billing import to_usd
from telemetry import metrics, tracing
from telemetry.tracing import request_id

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """What the sockets of one path serve, and for whom."""

    service: Service  # in metrics
    open: Callable[[SocketSession, Services], Conversation]
    scopes: tuple[Scope, ...]  # that the key needs
    visitors: bool = False  # whether browser tokens open it
    scopes_of: Callable[[WebSocket, SecretSession | None], tuple[Scope, ...]] | None = None
    """Checks the options of a handshake, and names the `scopes` that they need, where not all."""
    schemes: tuple[str, ...] = BEARER  # may hold a key where the query has none
    key_queries: tuple[str, ...] = ("apiKey",)  # parameters, of which one may be the key
    greets: bool = True  # sends the hello messages
    has_get: bool = True  # answers a plain GET, for health checks; other routes may have the path
    # Browsers, which can set no header, may offer `subprotocol` and another that is this and the
    # key.
    subprotocol: str | None = None
    key_prefix: str = ""
    key_after: tuple[str, ...] = ()  # subprotocols, each offered before one that is the key
    takes_secrets: bool = False  # opens with a client secret too
    takes_key_in_path: bool = False  # as a last part of the path
    key_in: Callable[[str], str] | None = None  # the first message, where it is nowhere else


def socket_routes(path: str, route: SocketRoute) -> list[BaseRoute]:
    """The WebSocket at `path`."""
    serve = partial(_serve_at, path=path, route=route)
    routes: list[BaseRoute] = [WebSocketRoute(path, serve)]
    if route.has_get:
        routes.append(Route(path, _ok, methods=["GET"]))
    if route.takes_key_in_path:
        routes.append(WebSocketRoute(f"{path}/{{key}}", serve))
    return routes


def unknown_sockets() -> WebSocketRoute:
    """Answers 404 to every other path; it must be the last route."""
    return WebSocketRoute("/{path:path}", _unknown)


async def _serve_at(websocket: WebSocket, path: str, route: SocketRoute) -> None:
    websocket.scope["path"] = path  # in logs: without a key
    tracing.annotate({"http.request.method": "GET", "http.route": path}, name=f"GET {path}")
    await _serve(websocket, route)


async def _ok(request: Request) -> Response:
    return PlainTextResponse("ok")


async def _unknown(websocket: WebSocket) -> None:
    await _refuse(websocket, ApiError("not_found", "there is no WebSocket at this path"))


def _key_of(websocket: WebSocket, route: SocketRoute) -> str:
    """Of the path, the query, the header, or the subprotocols; empty without one."""
    if route.takes_key_in_path and (key := websocket.path_params.get("key")):
        return str(key)
    given = filter(None, map(websocket.query_params.get, route.key_queries))
    key = next(given, "") or credential_of(websocket, route.schemes)
    offered: list[str] = websocket.scope["subprotocols"]
    if not key and route.subprotocol:
        keys = (one for one in offered if route.key_prefix and one.startswith(route.key_prefix))
        key = next(keys, "").removeprefix(route.key_prefix)
    if not key and len(offered) > 1 and offered[0] in route.key_after:
        key = offered[1]
    return key


async def _serve(websocket: WebSocket, route: SocketRoute) -> None:
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
        late = ApiError("unavailable", "the key could not be checked")
        if first is None and websocket.application_state is WebSocketState.CONNECTED:
            late = ApiError("unauthorized", "no message with a key came in time")
        await _refuse(websocket, late)
        return
    except Exception as error:  # every failure before the upgrade is an HTTP answer
        await _refuse(websocket, to_api_error(error))
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
            lambda made: route.open(made, services),
            secret_session,
        )
        sockets.add(session)
        try:
            with metrics.sockets_live.labels(route.service).track_inprogress():
                hello = _hello(session, route.service, credit) if route.greets else []
                await session.run(*hello, first=first)
        finally:
            sockets.discard(session)
            seconds = time.perf_counter() - started
            metrics.socket_seconds.labels(route.service).observe(seconds)
            metrics.socket_closes.labels(route.service, close_codes.shown(session.close_code)).inc()
            close = {"http.response.status_code": 101, "antiphon.close_code": session.close_code}
            tracing.annotate(close)
            access_log.info(
                "socket",
                extra={
                    "path": websocket.scope["path"],  # without the query, which may hold a key
                    "code": session.close_code,
                    "seconds": round(seconds, 3),
                    "received": session.received,
                    "sent": session.sent,
                },
            )
    except OSError:
        pass  # the client disconnected in the handshake
    finally:
        await lease.release()


async def _accept(websocket: WebSocket, route: SocketRoute) -> None:
    known = {route.subprotocol, *route.key_after}
    await websocket.accept(
        next((one for one in websocket.scope["subprotocols"] if one in known), None),
        headers=[(b"x-request-id", (request_id.get() or "").encode())],
    )


async def _first_message(websocket: WebSocket, route: SocketRoute) -> str:
    """Of a socket that is accepted without a key; empty unless it is text. Raises ApiError for an
    address that has too many such sockets."""
    admission = services_of(websocket).infrastructure.admission
    leave = admission.enter_unknown(client_address(websocket))
    try:
        await _accept(websocket, route)
        return (await websocket.receive()).get("text") or ""
    finally:
        leave()


async def _refuse(websocket: WebSocket, error: ApiError) -> None:
    """A real HTTP answer in place of the upgrade; to a socket that was accepted without a key a
    message with its body, and close code 1008."""
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
            await websocket.close(close_codes.POLICY, error.code)
        return
    await websocket.receive()  # the connect message
    with suppress(OSError):
        await websocket.send_denial_response(response)


def _hello(session: SocketSession, service: Service, credit: int) -> list[str]:
    """The first messages of the server."""
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
    return [json_text(one) for one in messages]
