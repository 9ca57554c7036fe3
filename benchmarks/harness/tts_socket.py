"""A client of `/ws/tts` that plays in real time, shared by the socket benchmarks."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from websockets.asyncio.client import ClientConnection, connect

SAMPLE_RATE = 16_000  # Hz; LINEAR16 is the default encoding
BYTES_PER_S = 2 * SAMPLE_RATE
CONTEXT = "bench"


class SocketError(Exception):
    """The service sent an error event."""


@dataclass(slots=True)
class Flush:
    """A flush as it is received by a player that plays from the first audio on."""

    asked: float  # time.monotonic() of the flush; the other times are by the same clock
    first: float = 0.0
    done: float = 0.0
    audio_s: float = 0.0
    chunks: int = 0
    dry_at: float = 0.0  # when the player's buffer is empty
    gaps_s: list[float] = field(default_factory=list)  # durations of underruns

    @property
    def first_ms(self) -> float:
        return (self.first - self.asked) * 1000

    def take(self, seconds: float) -> None:
        """Record a chunk of audio received now."""
        now = time.monotonic()
        if not self.chunks:
            self.first = self.dry_at = now
        elif now > self.dry_at:
            self.gaps_s.append(now - self.dry_at)
            self.dry_at = now
        self.dry_at += seconds
        self.audio_s += seconds
        self.chunks += 1


class TTSSocket:
    """A socket with one context."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, name: str, **body: Any) -> None:
        await self.connection.send(json.dumps({name: {"context_id": CONTEXT, **body}}))

    async def receive(self) -> tuple[str, Any]:
        """The next message. Raises SocketError for an error event."""
        message = json.loads(await self.connection.recv())
        name, body = next(iter(message.items()))
        if name == "error":
            raise SocketError(body["message"])
        return name, body

    async def chunks(self) -> AsyncGenerator[float, None]:
        """Seconds of each audio chunk until the flush is completed."""
        while True:
            name, body = await self.receive()
            if name == "flush_completed":
                return
            audio = body["audioContent"]
            size = len(audio) * 3 // 4 - audio.count("=", -2)
            yield size / BYTES_PER_S

    async def speak(
        self, text: str = "", *, asked: float | None = None, seconds: float = float("inf")
    ) -> Flush:
        """Send `text` and a flush; return when it is completed, or when the player has received
        `seconds` of audio or has played for `seconds`.

        `asked` is when it should have been sent, if that was earlier: the wait counts too.
        """
        if text:
            await self.send("send_text", text=text)
        flush = Flush(asked or time.monotonic())
        await self.send("flush_context")
        async for chunk_s in self.chunks():
            flush.take(chunk_s)
            if time.monotonic() - flush.first > seconds or flush.audio_s > seconds:
                break
        flush.done = time.monotonic()
        return flush

    async def first_audio(self, asked: float | None = None) -> Flush:
        """Flush the text sent before; return at its first chunk, with the rest still to come."""
        return await self.speak(asked=asked, seconds=0.0)

    def vanish(self) -> None:
        """Abort the connection without a close frame."""
        self.connection.transport.abort()


def socket_url(base_url: str, path: str, key: str) -> str:
    return f"{base_url.replace('http', 'ws', 1)}{path}?apiKey={quote(key)}"


@asynccontextmanager
async def tts_socket(base_url: str, key: str, voice_id: str) -> AsyncIterator[TTSSocket]:
    """A socket with a created context."""
    url = socket_url(base_url, "/ws/tts", key)
    async with connect(url, compression=None, max_size=None, close_timeout=1) as connection:
        socket = TTSSocket(connection)
        while (await socket.receive())[0] != "connection_established":
            pass
        await socket.send("create_context", voice_id=voice_id)
        assert (await socket.receive())[0] == "context_created"
        yield socket


async def until(moment: float) -> None:
    """Sleep until time.monotonic() is `moment`."""
    await asyncio.sleep(max(0.0, moment - time.monotonic()))
