"""The events of a speaking context on a socket, in whichever protocol."""

from typing import Protocol

from pydantic import BaseModel

from api.http.errors import to_api_error
from api.sockets.kernel.session import SocketSession
from pipelines.tts.context_voice import EncodedChunk

Event = BaseModel | str
"""What `SocketSession.send` takes: a model, or JSON that is written already."""


class ContextWire(Protocol):
    """How a protocol writes the events of one context."""

    def audio(self, chunk: EncodedChunk) -> Event:
        """A chunk of speech."""
        ...

    def rest(self, spoken_s: float) -> Event | None:
        """What was held back until a flush ended, which may have failed.

        `spoken_s` is the length of all audio of the context's voice.
        """
        ...

    def flushed(self) -> Event:
        """A flush succeeded."""
        ...

    def closed(self) -> Event:
        """The last event of the context."""
        ...

    def error(self, message: str, status: int = 400) -> BaseModel:
        """`status` is the one that HTTP would answer."""
        ...


class SocketOutput:
    """A `ContextOutput` that sends over a session. Every method raises SessionEnded."""

    def __init__(self, session: SocketSession, wire: ContextWire) -> None:
        self._session = session
        self._wire = wire

    async def send_audio(self, chunk: EncodedChunk) -> None:
        await self._session.send(self._wire.audio(chunk))
        self._session.touch()  # a client that listens is not idle

    async def end_flush(self, spoken_s: float) -> None:
        if (rest := self._wire.rest(spoken_s)) is not None:
            await self._session.send(rest)

    async def send_flushed(self) -> None:
        await self._session.send(self._wire.flushed())

    async def send_closed(self) -> None:
        await self._session.send(self._wire.closed())

    async def send_error(self, error: Exception) -> None:
        shown = to_api_error(error)
        await self._session.send(self._wire.error(shown.message, shown.status))
