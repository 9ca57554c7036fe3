"""A client of `/ws/stt` for tests."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from models.audio import Pcm, float_to_pcm16
from tests.api.sockets.client import JsonClient, connect
from tests.api.sockets.conftest import SocketServer


class SttClient(JsonClient):
    """One session."""

    async def send(self, message: object) -> None:
        await self.socket.send(json.dumps(message))

    async def receive_until(self, kind: str) -> list[dict[str, Any]]:
        """The messages up to and with the first of that type."""
        messages = [await self.receive()]
        while messages[-1].get("type") != kind:
            messages.append(await self.receive())
        return messages

    async def start(self, languages: list[str] | None = None, **config: object) -> dict[str, Any]:
        """Sends `start` and returns its answer."""
        await self.send({"type": "start", "languages": languages, "config": config})
        return await self.receive()

    async def send_pcm(self, *pieces: Pcm, sample_rate: int = 16_000, step_s: float = 0.1) -> None:
        """Sends audio as linear JSON chunks."""
        data = float_to_pcm16(np.concatenate(pieces))
        step = int(step_s * sample_rate) * 2
        for at in range(0, len(data), step):
            await self.send(audio(data[at : at + step], "linear", sample_rate))

    async def stop(self) -> tuple[list[dict[str, Any]], int | None]:
        """Sends `stop`; returns the messages after it and the close code."""
        await self.send({"type": "stop"})
        return await self.receive_rest()


def audio(data: bytes, encoding: str, sample_rate: int) -> dict[str, object]:
    """An audio message."""
    return {
        "type": "audio",
        "audio": base64.b64encode(data).decode(),
        "encoding": encoding,
        "sample_rate": sample_rate,
    }


@asynccontextmanager
async def stt(server: SocketServer) -> AsyncIterator[SttClient]:
    """A client that has received the hello messages."""
    async with connect(server.url("/ws/stt")) as socket:
        client = SttClient(socket)
        await client.receive()
        await client.receive()
        yield client


def finals(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The final transcriptions, empty ones too."""
    return [one for one in messages if one.get("type") == "transcription" and one["is_final"]]
