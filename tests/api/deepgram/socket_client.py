"""A client of Deepgram's sockets for tests."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import numpy as np
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from models.audio import Pcm, float_to_pcm16
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import quiet

STREAM = {"encoding": "linear16", "sample_rate": 16_000}


class DeepgramClient:
    """Sends messages and audio, and reads events."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def send_pcm(self, *pieces: Pcm) -> None:
        data = float_to_pcm16(np.concatenate(pieces))
        for at in range(0, len(data), 3200):
            await self.socket.send(data[at : at + 3200])

    async def receive(self) -> dict[str, Any]:
        """The next event; binary audio is `{"audio"}`."""
        async with asyncio.timeout(PATIENCE_S):
            frame = await self.socket.recv()
        if isinstance(frame, bytes):
            return {"type": "audio", "audio": frame}
        event: dict[str, Any] = json.loads(frame)
        return event

    async def until(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """The events up to the first of that type with those fields."""
        events = [await self.receive()]
        while not {"type": kind, **fields}.items() <= events[-1].items():
            events.append(await self.receive())
        return events

    async def until_in_silence(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """The same, while the microphone stays open."""

        async def stay_silent() -> None:
            while True:
                await self.send_pcm(quiet(0.1))
                await asyncio.sleep(0.03)

        silence = asyncio.create_task(stay_silent())
        try:
            return await self.until(kind, **fields)
        finally:
            silence.cancel()

    async def rest(self) -> tuple[list[dict[str, Any]], int | None, str]:
        """The events until the server closes, its code and its reason."""
        events = []
        try:
            while True:
                events.append(await self.receive())
        except ConnectionClosed:
            return events, self.socket.close_code, self.socket.close_reason or ""


@asynccontextmanager
async def deepgram(server: SocketServer, path: str, **query: Any) -> AsyncIterator[DeepgramClient]:
    """A client that authenticates as Deepgram's do."""
    url = f"ws://{server.address}{path}?{urlencode(query, doseq=True)}"
    headers = {"Authorization": f"Token {server.key}"}
    async with connect(url, additional_headers=headers) as socket:
        yield DeepgramClient(socket)


def best(event: dict[str, Any]) -> dict[str, Any]:
    """The alternative of a result."""
    alternative: dict[str, Any] = event["channel"]["alternatives"][0]
    return alternative
