"""A client of Cartesia's socket for tests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.api.sockets.client import JsonClient, connect
from tests.api.sockets.conftest import SocketServer

PATH = "/cartesia/tts/websocket"
MORE: dict[str, Any] = {"continue": True}
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}


class CartesiaClient(JsonClient):
    """Sends generation requests and reads events."""

    def __init__(self, socket: ClientConnection, voice_id: str) -> None:
        super().__init__(socket)
        self.usual = {
            "model_id": "sonic-3",
            "voice": {"mode": "id", "id": voice_id},
            "output_format": FORMAT,
        }

    async def say(self, transcript: str, context_id: str | None = "c", **fields: Any) -> None:
        named = {} if context_id is None else {"context_id": context_id}
        message = {**self.usual, "transcript": transcript, **named, **fields}
        await self.socket.send(json.dumps(message))

    async def until(self, kind: str, context_id: str = "c") -> list[dict[str, Any]]:
        """The events of a context up to the first of that type."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != kind:
            event = await self.receive()
            if event["context_id"] == context_id:
                events.append(event)
        return events


@asynccontextmanager
async def cartesia(server: SocketServer, **headers: str) -> AsyncIterator[CartesiaClient]:
    url = f"ws://{server.address}{PATH}?cartesia_version=2025-04-16"
    given = headers or {"X-API-Key": server.key}
    async with connect(url, additional_headers=given) as socket:
        yield CartesiaClient(socket, server.voice_id)
