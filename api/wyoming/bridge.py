"""Wyoming's TCP connections as WebSockets of ASGI, so that they are admitted, limited, charged,
counted and drained as all sockets: each is opened with the same API key, and each event is a message.
"""

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.types import Message

from api.http.middleware import RequestFrame
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.wyoming.conversation import WyomingConversation
from api.wyoming.framing import read_frame, wyoming_error
from api.wyoming.handle import open_memory
from pipelines.accounts.authentication import MODEL_SCOPES
from telemetry.logs import redact_logs

logger = logging.getLogger(__name__)

PATH = "/wyoming"  # in logs and traces
CLOSING_S = 2.0  # for what the client has not read yet


class WyomingBridge:
    """Serves connections, for `asyncio.start_server`."""

    def __init__(self, services: Services, key: str) -> None:
        """`key` is the API key that all connections use."""
        redact_logs()
        memory = open_memory()
        route = SocketRoute(
            "wyoming",
            lambda session, given: WyomingConversation(session, given, memory),
            lambda *_: MODEL_SCOPES,
            greets=False,
        )
        self._app = Starlette(routes=socket_routes(PATH, route))
        self._app.state.services = services
        self._app.add_middleware(RequestFrame, admission=services.infrastructure.admission)
        self._headers = [(b"authorization", f"Bearer {key}".encode())]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until its end."""
        connection = WyomingConnection(reader, writer)
        try:
            await self._app(self._scope(writer), connection.receive, connection.send)
        except Exception:  # one connection must not end the others
            logger.exception("wyoming_connection_failed")
        finally:
            writer.close()
            with suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(CLOSING_S):
                    await writer.wait_closed()
            writer.transport.abort()

    def _scope(self, writer: asyncio.StreamWriter) -> dict[str, Any]:
        peer = writer.get_extra_info("peername")
        return {
            "type": "websocket",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": PATH,
            "root_path": "",
            "query_string": b"",
            "headers": self._headers,
            "client": peer[:2] if peer else None,
            "server": None,
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }


class WyomingConnection:
    """The messages of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_open = False

    async def receive(self) -> Message:
        """The next event. After one whose end is not known the connection ends, with the reason."""
        if not self._is_open:
            self._is_open = True
            return {"type": "websocket.connect"}
        code = close_codes.LOST
        try:
            if frame := await read_frame(self._reader):
                return {"type": "websocket.receive", "bytes": frame}
        except ClientFault as fault:
            self._writer.write(wyoming_error(fault.message))
            code = close_codes.POLICY
        except OSError:
            pass
        return {"type": "websocket.disconnect", "code": code}

    async def send(self, message: Message) -> None:
        """Sends an event, or why the connection is refused."""
        if message["type"] == "websocket.send":
            self._writer.write(message["bytes"])
            await self._writer.drain()
        elif message["type"] == "websocket.http.response.body":
            refused = json.loads(message["body"])
            self._writer.write(wyoming_error(refused["message"], refused["error"]))
