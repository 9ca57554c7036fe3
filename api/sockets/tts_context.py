"""One context of `/ws/tts`: its buffer of text, and the flushes that wait their turn."""

import asyncio
import json
from collections import deque
from contextlib import aclosing
from dataclasses import dataclass

from api.errors import to_api_error
from api.sockets.conversation import ClientFault, SessionEnded
from api.sockets.session import Session
from api.sockets.tts_events import (
    ContextClosed,
    ContextRef,
    FlushCompleted,
    audio_chunk,
    tts_error,
)
from api.sockets.tts_voice import ContextVoice

BUFFER_CHARACTERS = 50_000
WAITING_FLUSHES = 4  # behind the one that is spoken


@dataclass(frozen=True, slots=True)
class Flush:
    """What one flush speaks."""

    text: str
    closes: bool = False


class SpeakingContext:
    """Speaks its flushes one after another, in a task of the session."""

    def __init__(self, session: Session, context_id: str, voice: ContextVoice) -> None:
        self.context_id = context_id
        self._id_json = json.dumps(context_id)
        self._session = session
        self._voice = voice
        self._parts: list[str] = []
        self._characters = 0
        self._closing = False
        self._waiting: deque[Flush] = deque()
        self._unfinished = 0  # flushes, the one that is spoken too
        self._wake = asyncio.Event()

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
        if self._unfinished > WAITING_FLUSHES:
            raise self._fault(f"{WAITING_FLUSHES} flushes wait already; the text is kept")
        self._queue(closes=False)

    def close(self) -> None:
        """Speaks the rest, then ends `run`."""
        self._check_open()
        self._closing = True
        self._queue(closes=True)

    async def run(self) -> None:
        """Returns after `context_closed` was sent."""
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            flush = self._waiting.popleft()
            spoken = await self._try(flush.text)
            self._unfinished -= 1
            reference = ContextRef(context_id=self.context_id)
            if flush.closes:
                await self._session.send(ContextClosed(context_closed=reference))
                return
            if spoken:
                await self._session.send(FlushCompleted(flush_completed=reference))

    async def _try(self, text: str) -> bool:
        """Whether it succeeded; a failure is told, and the context lives on."""
        try:
            await self._speak(text)
            return True
        except SessionEnded:
            raise
        except Exception as error:
            self._voice.reset()
            message = to_api_error(error).message
            await self._session.send(tts_error(message, self.context_id))
            return False

    async def _speak(self, text: str) -> None:
        async with aclosing(self._voice.speak(text)) as chunks:
            async for chunk in chunks:
                await self._session.send(audio_chunk(self._id_json, chunk.base64, chunk.words))
                self._session.touch()  # who listens is not idle

    def _queue(self, *, closes: bool) -> None:
        self._waiting.append(Flush("".join(self._parts), closes))
        self._parts.clear()
        self._characters = 0
        self._unfinished += 1
        self._wake.set()

    def _check_open(self) -> None:
        if self._closing:
            raise self._fault("the context is closing")

    def _fault(self, message: str) -> ClientFault:
        return ClientFault(message, tts_error(message, self.context_id))
