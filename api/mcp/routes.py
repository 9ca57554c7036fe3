"""`/mcp`: the Model Context Protocol over streamable HTTP, answered as JSON; nothing is kept.

A client of the protocol up to 2025-11-25 cancels a call by a message of its own, which is found by
the session id that it was given; later ones close the connection.
"""

import asyncio
import json
from secrets import token_hex
from typing import Any

from anyio import CancelScope, to_thread
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.responses import Response
from starlette.types import ASGIApp, Message

from api.http.bodies import parse_json, read_json
from api.http.context import context_of
from api.http.errors import ApiError, ErrorDialect
from api.http.routing import InfrastructureDep, PrincipalDep, make_router
from api.http.streaming import while_connected

router = make_router("MCP", scope="any")

SESSION = "mcp-session-id"
REQUEST_CANCELLED = -32800

_running: dict[tuple[int, str, str], CancelScope] = {}  # by workspace, session and request


def _error_shape(error: ApiError, _: str) -> tuple[dict[str, Any], dict[str, str]]:
    numbers = {"invalid_json": -32700, "internal_error": -32603}
    number = numbers.get(error.code, -32600 if error.status == 400 else -32000)
    shown = {"code": number, "message": error.message, "data": {"type": error.code}}
    return {"jsonrpc": "2.0", "id": None, "error": shown}, {}


MCP_ERRORS = ErrorDialect(("/mcp",), _error_shape)


@router.post("/mcp", include_in_schema=False)
async def receive_message(
    request: Request, principal: PrincipalDep, infrastructure: InfrastructureDep
) -> Response:
    """One message of JSON-RPC; its work stops when the client disconnects or cancels it."""
    server = await to_thread.run_sync(_load)
    async with infrastructure.bodies.of(principal.workspace_id) as take:
        body = await read_json(request, server.MAX_BYTES, take)
        context = context_of(request)
        await context.turn.take()
        message = parse_json(body)
        context.turn.leave()
        if not isinstance(message, dict):
            raise ApiError("validation_error", "the body must be one message of JSON-RPC")
        client = principal.workspace_id, request.headers.get(SESSION, "")
        method, params, number = (message.get(one) for one in ("method", "params", "id"))
        if method == "notifications/cancelled" and isinstance(params, dict):
            if cancelled := _running.get((*client, json.dumps(params.get("requestId")))):
                cancelled.cancel()
        context.place.take()
        context.take_memory = take
        key = (*client, json.dumps(number))
        with CancelScope() as scope:
            if client[1]:
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
    shown = {"code": REQUEST_CANCELLED, "message": "the request was cancelled"}
    return JSONResponse({"jsonrpc": "2.0", "id": number, "error": shown})


async def _answer(handle: ASGIApp, request: Request, body: bytes) -> Response:
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not given:
            await asyncio.Event().wait()  # `while_connected` listens for the client's end
        return given.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    await handle(request.scope, receive, send)
    response = Response(b"".join(one.get("body", b"") for one in sent[1:]), sent[0]["status"])
    response.raw_headers = sent[0]["headers"]
    return response


def _load() -> Any:
    """The server, which is imported by the first message: the SDK takes 18 MB."""
    from api.mcp import server

    return server
