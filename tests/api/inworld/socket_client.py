"""A client of Inworld's socket for tests."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.api.sockets.client import JsonClient, connect
from tests.api.sockets.conftest import SocketServer

PATH = "/tts/v1/voice:streamBidirectional"


class InworldClient(JsonClient):
    """Sends messages and reads events with Inworld's field names."""

    def __init__(self, socket: ClientConnection, voice_id: str) -> None:
        super().__init__(socket)
        self.voice_id = voice_id

    async def send(self, name: str, context_id: str | None = None, **body: Any) -> None:
        named = {} if context_id is None else {"contextId": context_id}
        await self.socket.send(json.dumps({name: body, **named}))

    async def receive(self) -> dict[str, Any]:
        """The `result` of the next event."""
        event = await super().receive()
        assert list(event) == ["result"]
        result: dict[str, Any] = event["result"]
        assert set(result["status"]) == {"code", "message", "details"}
        return result

    async def create(self, context_id: str = "c", **changes: Any) -> dict[str, Any]:
        """Opens a context, by default PCM at 16 kHz; returns its settings."""
        audio = {"audioEncoding": "PCM", "sampleRateHertz": 16_000}
        await self.send(
            "create", context_id, **{"voiceId": self.voice_id, "audioConfig": audio} | changes
        )
        result = await self.receive()
        assert result["contextId"] == context_id and result["status"]["code"] == 0, result
        made: dict[str, Any] = result["contextCreated"]
        return made

    async def send_text(self, text: str, context_id: str = "c") -> None:
        await self.send("send_text", context_id, text=text)

    async def until(self, name: str, context_id: str = "c") -> "InworldSpeech":
        """The speech of a context until an event of that name."""
        speech = InworldSpeech()
        while name not in (result := await self.receive()):
            assert result["status"]["code"] == 0, result
            if result["contextId"] == context_id:
                speech.take(result)
        return speech

    async def error(self, name: str, context_id: str | None = None, **body: Any) -> dict[str, Any]:
        """Sends a message; returns the status of its error and the context that it names."""
        await self.send(name, context_id, **body)
        result = await self.receive()
        while "audioChunk" in result:
            result = await self.receive()
        status: dict[str, Any] = result["status"]
        assert status["code"] != 0, result
        return status | {"contextId": result.get("contextId")}


class InworldSpeech:
    """The audio, timings and flushes received of a context."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.timings: list[dict[str, Any]] = []
        self.flushes = 0

    def take(self, result: dict[str, Any]) -> None:
        if chunk := result.get("audioChunk"):
            if data := base64.b64decode(chunk["audioContent"], validate=True):
                self.chunks.append(data)
            if timing := chunk.get("timestampInfo"):
                self.timings.append(timing)
        self.flushes += "flushCompleted" in result

    @property
    def seconds(self) -> float:
        """The duration of PCM at 16 kHz."""
        return len(b"".join(self.chunks)) / 32_000

    def words(self) -> list[tuple[str, float, float]]:
        rows = [timing["wordAlignment"] for timing in self.timings]
        return [
            word
            for row in rows
            for word in zip(
                row["words"], row["wordStartTimeSeconds"], row["wordEndTimeSeconds"], strict=True
            )
        ]


@asynccontextmanager
async def inworld(server: SocketServer) -> AsyncIterator[InworldClient]:
    """A client that authenticates as Inworld's do, by HTTP Basic."""
    headers = {"Authorization": f"Basic {server.key}"}
    async with connect(f"ws://{server.address}{PATH}", additional_headers=headers) as socket:
        yield InworldClient(socket, server.voice_id)
