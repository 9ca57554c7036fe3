"""A client of the sockets, as short as tests want it."""

import base64
import json
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed


def connect(url: str, **options: Any) -> open_socket:
    """Without a proxy, compression or pings of its own."""
    return open_socket(url, proxy=None, compression=None, ping_interval=None, **options)


class TtsClient:
    """Speaks the protocol of `/ws/tts`."""

    def __init__(self, socket: ClientConnection, voice_id: str) -> None:
        self.socket = socket
        self.voice_id = voice_id

    async def say(self, name: str, **body: Any) -> None:
        await self.socket.send(json.dumps({name: body}))

    async def hear(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(await self.socket.recv())
        return event

    async def create(self, **body: Any) -> str:
        """Opens a context and returns its id."""
        await self.say("create_context", voice_id=self.voice_id, **body)
        context_id: str = (await self.hear())["context_created"]["context_id"]
        return context_id

    async def error(self, name: str, **body: Any) -> dict[str, Any]:
        """What the server finds wrong with a message."""
        await self.say(name, **body)
        error: dict[str, Any] = (await self.hear())["error"]
        return error

    async def speak(self, text: str, **context: Any) -> bytes:
        """The audio of one flush."""
        await self.say("send_text", text=text, **context)
        await self.say("flush_context", **context)
        return await self.audio("flush_completed")

    async def audio(self, until: str) -> bytes:
        """Decoded audio of the chunks until an event of that name."""
        heard = b""
        while until not in (event := await self.hear()):
            assert "audio_chunk" in event, event
            heard += base64.b64decode(event["audio_chunk"]["audioContent"], validate=True)
        return heard

    async def rest(self) -> tuple[list[dict[str, Any]], int]:
        """All that still comes, and the close code."""
        events = []
        while True:
            try:
                events.append(await self.hear())
            except ConnectionClosed:
                code = self.socket.close_code
                assert code is not None
                return events, code
