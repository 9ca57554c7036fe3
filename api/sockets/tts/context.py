"""One speaking context: its buffer of text, and the flushes that wait their turn."""

import asyncio
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from api.http.errors import to_api_error
from api.sockets.kernel.conversation import ClientFault, SessionEnded
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.voice import ContextVoice, EncodedChunk

BUFFER_CHARACTERS = 50_000
WAITING_FLUSHES = 4  # behind the one that is spoken

Event = BaseModel | str
"""What `SocketSession.send` takes: a model, or JSON that is written already."""


class ContextWire(Protocol):
    """How a protocol writes the events of one context."""

    def audio(self, chunk: EncodedChunk) -> Event:
        """A piece of speech."""
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


@dataclass(slots=True)
class Flush:
    """What one flush speaks."""

    text: str
    voice: ContextVoice
    wire: ContextWire
    closes: bool = False
    grows: bool = False  # nobody asked for it: what comes next may join it while it waits


class SpeakingContext:
    """Speaks its flushes one after another, in a task of the session."""

    def __init__(
        self, session: SocketSession, context_id: str, voice: ContextVoice, wire: ContextWire
    ) -> None:
        self.context_id = context_id
        self._session = session
        self._voice = voice
        self._wire = wire
        self._parts: list[str] = []
        self._characters = 0  # of the parts, and of what waits and may grow
        self._closing = False
        self._cancelled = False
        self._speaking: asyncio.Task[None] | None = None
        self._waiting: deque[Flush] = deque()
        self._unfinished = 0  # flushes, the one that is spoken too
        self._wake = asyncio.Event()

    @property
    def buffered(self) -> str:
        """The text that no flush has taken yet."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def closing(self) -> bool:
        """Whether it takes no more text."""
        return self._closing

    @property
    def idle(self) -> bool:
        """Whether it has nothing to speak, now or later."""
        return not (self._closing or self._unfinished or self.buffered.strip())

    @property
    def crowded(self) -> bool:
        """Whether `flush` is refused because too many wait."""
        return self._unfinished > WAITING_FLUSHES

    def add(self, text: str) -> None:
        """Raises ClientFault when the buffer would hold too much; it stays as it was."""
        self._check_open()
        if self._characters + len(text) > BUFFER_CHARACTERS:
            raise self._fault(f"text_buffer exceeded {BUFFER_CHARACTERS} character limit")
        if text:
            self._parts.append(text)
            self._characters += len(text)

    def flush(self) -> None:
        """Raises ClientFault when too many wait; the text stays in the buffer."""
        self._check_open()
        if self.crowded:
            raise self._fault(f"{WAITING_FLUSHES} flushes wait already; the text is kept")
        self._queue()

    def speak_on(self, characters: int) -> None:
        """Speaks the first `characters` of the buffer as soon as it can, unasked.

        While other text waits they join it, so there are never more than a few flushes.
        """
        text, kept = self.buffered[:characters], self.buffered[characters:]
        if not text or self._closing:
            return
        self._parts = [kept] if kept else []
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.grows and last.voice is self._voice:
            last.text += text
        else:
            self._put(Flush(text, self._voice, self._wire, grows=True))

    def change(self, voice: ContextVoice, wire: ContextWire) -> None:
        """Speaks what the buffer holds with the voice so far, and what comes with another.

        Raises ClientFault when too many flushes wait.
        """
        self._check_open()
        if self._parts and self.crowded:
            raise self._fault(f"{WAITING_FLUSHES} flushes wait already; nothing is changed")
        self.speak_on(len(self.buffered))
        self._voice, self._wire = voice, wire

    def close(self) -> None:
        """Speaks the rest, then ends `run`."""
        self._check_open()
        self._closing = True
        self._queue(closes=True)

    def cancel(self) -> None:
        """Stops speaking, forgets what was not spoken, and ends `run`."""
        self._closing = self._cancelled = True
        self._waiting.clear()
        self._parts.clear()
        if self._speaking is not None:
            self._speaking.cancel()

    async def run(self) -> None:
        """Returns after the event that closes the context was sent."""
        if not self._cancelled:
            self._speaking = asyncio.current_task()
            try:
                await self._speak_all()
            except asyncio.CancelledError:
                if not self._cancelled:
                    raise
                if self._speaking is not None:
                    self._speaking.uncancel()
            self._speaking = None
        await self._session.send(self._wire.closed())

    async def _speak_all(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            flush = self._waiting.popleft()
            if flush.grows:
                self._characters -= len(flush.text)
            spoken = await self._try(flush)
            self._unfinished -= 1
            if (rest := flush.wire.rest(flush.voice.spoken_s)) is not None:
                await self._session.send(rest)
            if flush.closes:
                return
            if spoken:
                await self._session.send(flush.wire.flushed())

    async def _try(self, flush: Flush) -> bool:
        """Whether it succeeded; a failure is told, and the context lives on."""
        try:
            await self._speak(flush)
            return True
        except SessionEnded:
            raise
        except Exception as error:  # any failure is answered; other contexts go on
            flush.voice.reset()
            shown = to_api_error(error)
            await self._session.send(flush.wire.error(shown.message, shown.status))
            return False

    async def _speak(self, flush: Flush) -> None:
        async with aclosing(flush.voice.speak(flush.text)) as chunks:
            async for chunk in chunks:
                await self._session.send(flush.wire.audio(chunk))
                self._session.touch()  # who listens is not idle

    def _queue(self, *, closes: bool = False) -> None:
        text = self.buffered
        self._parts.clear()
        self._characters -= len(text)
        self._put(Flush(text, self._voice, self._wire, closes))

    def _put(self, flush: Flush) -> None:
        self._waiting.append(flush)
        self._unfinished += 1
        self._wake.set()

    def _check_open(self) -> None:
        if self._closing:
            raise self._fault("the context is closing")

    def _fault(self, message: str) -> ClientFault:
        return ClientFault(message, self._wire.error(message))
