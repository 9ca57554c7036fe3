"""Serves Wyoming's TCP connections as WebSockets of ASGI, so that they are admitted, limited,
charged and drained like all sockets. All use one API key, and each event is a message."""

import asyncio
import json
import logging
from contextlib import suppress

from starlette.applications import Starlette
from starlette.types import Message, Scope

from api.http.context import CLIENT_LEFT
from api.http.middleware import RequestFrame
from api.http.streaming import LOOK_S, has_left
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.wyoming.conversation import MAX_CONVERSATIONS, MEMORY_S, Memory, WyomingConversation
from api.wyoming.events import read_frame, wyoming_error
from pipelines.accounts.authentication import MODEL_SCOPES
from pipelines.tasks import TtlCache

logger = logging.getLogger(__name__)

PATH = "/wyoming"  # for logs and traces
CLOSING_S = 2.0  # time for the client to read the last events


class WyomingBridge:
    """Serves the connections of `asyncio.start_server`."""

    def __init__(self, services: Services, key: str) -> None:
        memory: Memory = TtlCache(MEMORY_S, MAX_CONVERSATIONS)
        route = SocketRoute(
            "wyoming",
            lambda session, services: WyomingConversation(session, services, memory),
            MODEL_SCOPES,
            greets=False,
        )
        self._app = Starlette(routes=socket_routes(PATH, route))
        self._app.state.services = services
        self._app.add_middleware(RequestFrame, admission=services.infrastructure.admission)
        self._scope: Scope = {
            "type": "websocket",
            "path": PATH,
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {key}".encode())],
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a connection until it ends, or until an event of unknown length arrives."""
        opening: list[Message] = [{"type": "websocket.connect"}]

        async def receive() -> Message:
            if opening:
                return opening.pop()
            code = close_codes.LOST
            with suppress(OSError):
                try:
                    if frame := await read_frame(reader):
                        return {"type": "websocket.receive", "bytes": frame}
                except ClientFault as fault:
                    writer.write(wyoming_error(fault.message))
                    code = close_codes.POLICY
            return {"type": "websocket.disconnect", "code": code}

        async def send(message: Message) -> None:
            if message["type"] == "websocket.send":
                writer.write(message["bytes"])
                await writer.drain()
            elif message["type"] == "websocket.http.response.body":  # the handshake was refused
                refusal = json.loads(message["body"])
                writer.write(wyoming_error(refusal["message"], refusal["error"]))

        async def watch() -> None:
            while not has_left(writer.transport):
                await asyncio.sleep(LOOK_S)
            client_left.set()

        client = writer.get_extra_info("peername")
        client_left = asyncio.Event()
        scope = {
            **self._scope,
            "client": client and client[:2],
            "state": {CLIENT_LEFT: client_left},
        }
        watching = asyncio.create_task(watch(), name="look for hang-up")
        try:
            await self._app(scope, receive, send)
        except Exception:  # one connection must not end the others
            logger.exception("wyoming_connection_failed")
        finally:
            watching.cancel()
            writer.close()
            with suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(CLOSING_S):
                    await writer.wait_closed()
            writer.transport.abort()
