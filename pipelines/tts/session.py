"""Speaking contexts: text comes in pieces, and each flush is spoken after the ones before it."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.tts.context_voice import ContextVoice, EncodedChunk

MAX_CONTEXTS = 5  # open at once in one session
REMEMBERED_IDS = 100  # of closed contexts, so that errors can name them
BUFFER_CHARACTERS = 50_000
WAITING_FLUSHES = 4  # behind the one that is spoken


class ContextFault(Exception):
    """The client asked for what the context cannot do now; the message is for the client."""


class ContextOutput(Protocol):
    """Where the speech and the events of one context go; waits while the client reads slowly."""

    async def send_audio(self, chunk: EncodedChunk) -> None:
        """A chunk of speech."""
        ...

    async def end_flush(self, spoken_s: float) -> None:
        """A flush ended, perhaps with an error; `spoken_s` is all audio of the context's voice."""
        ...

    async def send_flushed(self) -> None:
        """A flush succeeded."""
        ...

    async def send_closed(self) -> None:
        """The last event of the context."""
        ...

    async def send_error(self, error: Exception) -> None:
        """A flush failed; the context stays open."""
        ...


@dataclass(slots=True)
class Flush:
    """What one flush speaks."""

    text: str
    voice: ContextVoice
    output: ContextOutput
    closes: bool = False
    grows: bool = False  # an automatic flush: later text may join it while it waits


class SpeakingContext:
    """A buffer of text, and a queue of flushes that a task speaks one after another."""

    def __init__(self, context_id: str, voice: ContextVoice, output: ContextOutput) -> None:
        self.context_id = context_id
        self._voice = voice
        self._output = output
        self._parts: list[str] = []
        self._characters = 0  # of the parts, and of waiting flushes that may grow
        self._is_closing = False
        self._is_cancelled = False
        self._speaking: asyncio.Task[None] | None = None
        self._waiting: deque[Flush] = deque()
        self._unfinished = 0  # flushes, also the one that is spoken
        self._wake = asyncio.Event()

    @property
    def buffered(self) -> str:
        """The text that no flush has taken yet."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def is_closing(self) -> bool:
        """Whether it accepts no more text."""
        return self._is_closing

    @property
    def is_idle(self) -> bool:
        """Whether it is open and has nothing to speak."""
        return not (self._is_closing or self._unfinished or self.buffered.strip())

    @property
    def is_crowded(self) -> bool:
        """Whether `flush` is refused because too many wait."""
        return self._unfinished > WAITING_FLUSHES

    def add_text(self, text: str) -> None:
        """Raises ContextFault when the buffer would exceed its limit; it stays as it was."""
        self._check_open()
        if self._characters + len(text) > BUFFER_CHARACTERS:
            raise ContextFault(f"text_buffer exceeded {BUFFER_CHARACTERS} character limit")
        if text:
            self._parts.append(text)
            self._characters += len(text)

    def flush(self) -> None:
        """Raises ContextFault when too many flushes wait; the text stays in the buffer."""
        self._check_open()
        if self.is_crowded:
            raise ContextFault(f"{WAITING_FLUSHES} flushes wait already; the text is kept")
        self._flush_all()

    def flush_automatically(self, characters: int) -> None:
        """Speaks the first `characters` of the buffer as soon as it can.

        They join automatic text that waits, so there are never more than a few flushes.
        """
        text, kept = self.buffered[:characters], self.buffered[characters:]
        if not text or self._is_closing:
            return
        self._parts = [kept] if kept else []
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last.grows and last.voice is self._voice:
            last.text += text
        else:
            self._enqueue(Flush(text, self._voice, self._output, grows=True))

    def change_voice(self, voice: ContextVoice, output: ContextOutput) -> None:
        """Flushes the buffer with the voice so far; later text is spoken with the new one.

        Raises ContextFault when too many flushes wait.
        """
        self._check_open()
        if self._parts and self.is_crowded:
            raise ContextFault(f"{WAITING_FLUSHES} flushes wait already; nothing is changed")
        self.flush_automatically(len(self.buffered))
        self._voice, self._output = voice, output

    def close(self) -> None:
        """Speaks the rest, then ends `run`. Raises ContextFault when it closes already."""
        self._check_open()
        self._is_closing = True
        self._flush_all(closes=True)

    def cancel(self) -> None:
        """Stops speaking, drops the text that was not spoken, and ends `run`."""
        self._is_closing = self._is_cancelled = True
        self._waiting.clear()
        self._parts.clear()
        if self._speaking is not None:
            self._speaking.cancel()

    async def run(self) -> None:
        """Returns after the event that closes the context was sent. Raises as the output does."""
        if not self._is_cancelled:
            self._speaking = asyncio.current_task()
            try:
                await self._speak_all()
            except asyncio.CancelledError:
                if not self._is_cancelled:
                    raise
                if self._speaking is not None:
                    self._speaking.uncancel()
            self._speaking = None
        await self._output.send_closed()

    async def _speak_all(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            flush = self._waiting.popleft()
            if flush.grows:
                self._characters -= len(flush.text)
            succeeded = await self._speak(flush)
            self._unfinished -= 1
            await flush.output.end_flush(flush.voice.spoken_s)
            if flush.closes:
                return
            if succeeded:
                await flush.output.send_flushed()

    async def _speak(self, flush: Flush) -> bool:
        """Whether it succeeded."""
        async with aclosing(flush.voice.speak(flush.text)) as chunks:
            while True:
                try:
                    chunk = await anext(chunks, None)
                except Exception as error:  # a flush that fails is reported, and ends nothing else
                    flush.voice.reset()
                    await flush.output.send_error(error)
                    return False
                if chunk is None:
                    return True
                await flush.output.send_audio(chunk)

    def _flush_all(self, *, closes: bool = False) -> None:
        text = self.buffered
        self._parts.clear()
        self._characters -= len(text)
        self._enqueue(Flush(text, self._voice, self._output, closes))

    def _enqueue(self, flush: Flush) -> None:
        self._waiting.append(flush)
        self._unfinished += 1
        self._wake.set()

    def _check_open(self) -> None:
        if self._is_closing:
            raise ContextFault("the context is closing")


class OpenContexts:
    """The contexts of one session, each with a task that speaks."""

    def __init__(
        self,
        start_task: Callable[[Coroutine[Any, Any, None], str], object],
        on_closed: Callable[[str], None],
    ) -> None:
        """`start_task` gets work and its name; `on_closed` the id of each context that ended."""
        self.closed_ids: deque[str] = deque(maxlen=REMEMBERED_IDS)
        self._start_task = start_task
        self._on_closed = on_closed
        self._open: dict[str, SpeakingContext] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._open

    def find(self, context_id: str | None) -> SpeakingContext | None:
        """The context of that id; without an id the only context that is open."""
        if context_id is not None:
            return self._open.get(context_id)
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def find_idle(self) -> SpeakingContext | None:
        """The oldest one that has nothing to speak."""
        return next((context for context in self._open.values() if context.is_idle), None)

    def open(self, context: SpeakingContext) -> None:
        """It takes text from now on, and speaks from `start` on."""
        self._open[context.context_id] = context

    def start(self, context: SpeakingContext) -> None:
        """Call it when the client knows of the context."""
        self._start_task(self._run(context), f"context {context.context_id}")

    async def _run(self, context: SpeakingContext) -> None:
        await context.run()
        del self._open[context.context_id]
        self.closed_ids.append(context.context_id)
        self._on_closed(context.context_id)
