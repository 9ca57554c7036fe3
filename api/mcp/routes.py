"""`/mcp`: the Model Context Protocol over stateless streamable HTTP, with JSON responses. Up to
protocol version 2025-11-25, clients cancel calls by notifications, which name the session; in
later versions, they close the connection."""

import asyncio
import json
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from anyio import CancelScope, to_thread
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import ASGIApp, Message

from api.http.addresses import host_of
from api.http.bodies import parse_json, read_json
from api.http.context import context_of
from api.http.errors import ApiError, ErrorDialect
from api.http.routing import InfrastructureDep, PrincipalDep, make_router
from api.http.streaming import while_connected
from configs.environment import is_loopback
from configs.settings import Settings

router = make_router("MCP", scope="any")

SESSION = "mcp-session-id"
REQUEST_CANCELLED = -32800

_running: dict[tuple[int, str, str], CancelScope] = {}
"""Running calls, by workspace id, session id and request id (as JSON)."""


def _error_shape(error: ApiError, _: str) -> tuple[dict[str, Any], dict[str, str]]:
    numbers = {"invalid_json": -32700, "internal_error": -32603}
    number = numbers.get(error.code, -32600 if error.status == 400 else -32000)
    fault = {"code": number, "message": error.message, "data": {"type": error.code}}
    return {"jsonrpc": "2.0", "id": None, "error": fault}, {}


MCP_ERRORS = ErrorDialect(("/mcp",), _error_shape)


@router.post("/mcp", include_in_schema=False)
async def receive_message(
    request: Request, principal: PrincipalDep, infrastructure: InfrastructureDep
) -> Response:
    """Answers a JSON-RPC message. Its work stops when the client disconnects or cancels it."""
    check_origin(request.headers.get("origin", ""), infrastructure.settings)
    server = await to_thread.run_sync(_load)
    async with infrastructure.bodies.of(principal.workspace_id) as take:
        body = await read_json(request, server.MAX_BYTES, take)
        context = context_of(request)
        await context.turn.take()
        message = parse_json(body)
        context.turn.leave()
        if not isinstance(message, dict):
            raise ApiError("validation_error", "the body must be one JSON-RPC message")
        method, params, number = (message.get(name) for name in ("method", "params", "id"))
        workspace_id = principal.workspace_id
        session_id = request.headers.get(SESSION, "")
        if method == "notifications/cancelled" and isinstance(params, dict):
            cancelled_id = json.dumps(params.get("requestId"))
            if cancelled := _running.get((workspace_id, session_id, cancelled_id)):
                cancelled.cancel()
        context.place.take()
        context.take_memory = take
        key = (workspace_id, session_id, json.dumps(number))
        with CancelScope() as scope:
            if session_id:
                _running[key] = scope
            try:
                work = _answer(server.handle, request, body)
                response = await while_connected(request.receive, work)
            finally:
                if _running.get(key) is scope:
                    del _running[key]
            if method == "initialize":
                response.headers[SESSION] = token_hex(16)
            return response
    fault = {"code": REQUEST_CANCELLED, "message": "the request was cancelled"}
    return JSONResponse({"jsonrpc": "2.0", "id": number, "error": fault})


def check_origin(origin: str, settings: Settings) -> None:
    """Raises ApiError(insufficient_scope) for a web page that is not of PUBLIC_URL, this machine or
    CORS_ORIGINS: the protocol demands a defence against DNS rebinding."""
    scheme, _, place = origin.partition("://")
    is_page = scheme.lower() in ("http", "https")
    is_own = is_loopback(host_of(origin)) or place == urlsplit(settings.public_url).netloc
    if is_page and not is_own and not {origin, "*"} & set(settings.cors_origins):
        raise ApiError(
            "insufficient_scope",
            "web pages of this origin may not call this service: see CORS_ORIGINS",
        )


async def _answer(handle: ASGIApp, request: Request, body: bytes) -> Response:
    unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # `while_connected` watches for a disconnect instead
        return unread.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = dict(request.scope)
    if "accept" not in request.headers:  # Go's clients send none, which means any type
        scope["headers"] = [*scope["headers"], (b"accept", b"*/*")]
    await handle(scope, receive, send)
    start, *parts = sent
    response = Response(b"".join(part.get("body", b"") for part in parts), start["status"])
    response.raw_headers = start["headers"]
    return response


def _load() -> Any:
    """Imports the server at the first message, since the SDK takes 18 MB of memory."""
    from api.mcp import server

    return server
