"""A client of `/ws/tts` for tests."""

import asyncio
import base64
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed

from tests.patience import PATIENCE_S


def connect(url: str, **options: Any) -> open_socket:
    """Opens a socket without proxy, compression or keepalive pings."""
    return open_socket(
        url,
        proxy=None,
        compression=None,
        ping_interval=None,
        open_timeout=PATIENCE_S,
        **options,
    )


class SocketAddresses(ABC):
    """The sockets of a server with its `address`, a key and a voice."""

    key: str
    voice_id: str

    @property
    @abstractmethod
    def address(self) -> str: ...

    def url(self, path: str, key: str | None = None) -> str:
        return f"ws://{self.address}{path}?apiKey={key or self.key}"

    @asynccontextmanager
    async def tts(self) -> AsyncIterator["TtsClient"]:
        """A client that has received the hello messages."""
        async with connect(self.url("/ws/tts")) as socket:
            client = TtsClient(socket, self.voice_id)
            await client.receive()
            await client.receive()
            yield client


class JsonClient:
    """Reads the JSON events of a socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def receive(self) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_S):
            event: dict[str, Any] = json.loads(await self.socket.recv())
        return event

    async def receive_rest(self) -> tuple[list[dict[str, Any]], int | None]:
        """The events until the server closes, and its code."""
        events = []
        try:
            while True:
                events.append(await self.receive())
        except ConnectionClosed:
            return events, self.socket.close_code


class TtsClient(JsonClient):
    """Speaks the protocol of `/ws/tts`."""

    def __init__(self, socket: ClientConnection, voice_id: str) -> None:
        super().__init__(socket)
        self.voice_id = voice_id

    async def send(self, name: str, **body: Any) -> None:
        await self.socket.send(json.dumps({name: body}))

    async def create(self, **body: Any) -> str:
        """Opens a context and returns its id."""
        await self.send("create_context", voice_id=self.voice_id, **body)
        context_id: str = (await self.receive())["context_created"]["context_id"]
        return context_id

    async def error(self, name: str, **body: Any) -> dict[str, Any]:
        """Sends a message and returns the error event that answers it."""
        await self.send(name, **body)
        error: dict[str, Any] = (await self.receive())["error"]
        return error

    async def speak(self, text: str, **context: Any) -> bytes:
        """Sends a text and a flush; returns the audio of the flush."""
        await self.send("send_text", text=text, **context)
        await self.send("flush_context", **context)
        return await self.audio("flush_completed")

    async def audio(self, until: str) -> bytes:
        """Decoded audio of the chunks until an event of that name."""
        heard = b""
        while until not in (event := await self.receive()):
            assert "audio_chunk" in event, event
            heard += base64.b64decode(event["audio_chunk"]["audioContent"], validate=True)
        return heard
