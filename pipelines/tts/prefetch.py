"""A bounded window of text chunks in flight with the engine, whose audio comes in order."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from models.audio import AudioChunk
from models.errors import PackMissing
from models.tts.base import SynthesisRequest
from pipelines.ports import TTSModel
from pipelines.text.chunking import TextChunk

IN_FLIGHT = 2  # chunks of one text; the streams of replicas have no limit of their own
_TOGETHER_S = 0.5  # audio that has come is given together, up to about so much
# An engine may give a chunk all at once, as parts that come one after another. The deadline of the
# next chunk is later when all of them have come than when only the first has.
_SETTLES_S = 0.03

LoadPack = Callable[[], Awaitable[bytes]]
Admit = Callable[[], Awaitable[Callable[[], None]]]


@dataclass(frozen=True, slots=True)
class EngineAudio:
    """Audio of one text chunk that came from the engine since the last."""

    text_chunk: TextChunk
    parts: list[AudioChunk]  # about 0.5 s; may be empty at the end
    is_end: bool  # of the text chunk


class InFlightChunk:
    """One text chunk with the engine; its audio waits here for that of the chunks before it."""

    def __init__(
        self,
        text_chunk: TextChunk,
        model: TTSModel,
        request: SynthesisRequest,
        load_pack: LoadPack | None = None,
    ) -> None:
        """`load_pack` gives the voice pack of the request to an engine that does not have it."""
        self.heard = asyncio.Event()  # the client has taken its first sound, or it has none
        self.buffered_s = 0.0  # audio that has come and was not pulled
        self.is_drained = False
        self._text_chunk = text_chunk
        self._parts: asyncio.Queue[AudioChunk | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._synthesize(model, request, load_pack))

    async def pull(self) -> EngineAudio:
        """Waits for audio. Raises EngineError."""
        parts: list[AudioChunk] = []
        part = await self._parts.get()
        while part is not None:
            parts.append(part)
            if sum(one.duration_s for one in parts) >= _TOGETHER_S or self._parts.empty():
                break
            part = self._parts.get_nowait()
        if part is None:
            await self.task  # raises the engine's error
            self.is_drained = True
        self.buffered_s -= sum(one.duration_s for one in parts)
        return EngineAudio(self._text_chunk, parts, self.is_drained)

    async def _synthesize(
        self, model: TTSModel, request: SynthesisRequest, load_pack: LoadPack | None
    ) -> None:
        try:
            try:
                await self._receive(model, request)
            except PackMissing:
                if request.pack is None or load_pack is None:
                    raise
                pack = replace(request.pack, data=await load_pack())
                await self._receive(model, replace(request, pack=pack))
        finally:
            self._parts.put_nowait(None)

    async def _receive(self, model: TTSModel, request: SynthesisRequest) -> None:
        async with aclosing(model.synthesize(request)) as parts:
            async for part in parts:
                self.buffered_s += part.duration_s
                self._parts.put_nowait(part)


class PrefetchWindow:
    """Keeps at most IN_FLIGHT chunks of one text with the engine, and gives their audio in order.

    A client that takes nothing holds the window back (backpressure). A chunk starts when the one
    before it is heard: so it delays no first sound, and is there when that one ends.
    """

    def __init__(
        self,
        read_next: Callable[[], Awaitable[TextChunk | None]],
        start: Callable[[TextChunk, float], InFlightChunk],
        admit: Admit,
    ) -> None:
        """`start` also gets the seconds of audio that wait here; `admit` comes before each start,
        and what it gives is called when the chunk is made."""
        self._read_next = read_next
        self._start = start
        self._admit = admit
        self._started: asyncio.Queue[InFlightChunk | None] = asyncio.Queue()
        self._places = asyncio.Semaphore(IN_FLIGHT)
        self._in_flight: set[InFlightChunk] = set()
        self._current: InFlightChunk | None = None
        self._starting: asyncio.Task[None] | None = None

    def open(self, first: TextChunk) -> None:
        """Starts the first chunk; `aclose` ends all."""
        self._starting = asyncio.create_task(self._start_all(first))

    async def pull(self, *, is_heard: bool) -> EngineAudio | None:
        """The next audio, None after the last; `is_heard` says that of the current chunk.

        Raises EngineError.
        """
        if self._current is not None and (is_heard or self._current.is_drained):
            self._current.heard.set()
            if self._current.is_drained:
                self._in_flight.discard(self._current)
                self._places.release()
                self._current = None
        if self._current is None:
            self._current = await self._started.get()
        if self._current is None:
            assert self._starting is not None, "the window is open"
            await self._starting  # raises its error
            return None
        return await self._current.pull()

    async def aclose(self) -> None:
        """Waits for the tasks that it cancels, so that no replica works for a client that left."""
        tasks: list[asyncio.Task[Any]] = [one.task for one in self._in_flight]
        if self._starting is not None:
            tasks.append(self._starting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start_all(self, first: TextChunk) -> None:
        text_chunk: TextChunk | None = first
        try:
            while text_chunk is not None:
                await self._places.acquire()
                done = await self._admit()
                try:
                    buffered_s = sum(one.buffered_s for one in self._in_flight)
                    chunk = self._start(text_chunk, buffered_s)
                except BaseException:  # also when cancelled: the admission is given back
                    done()
                    raise
                chunk.task.add_done_callback(lambda _, done=done: done())  # type: ignore[misc]
                self._in_flight.add(chunk)
                self._started.put_nowait(chunk)
                await chunk.heard.wait()
                await asyncio.wait({chunk.task}, timeout=_SETTLES_S)
                text_chunk = await self._read_next()
        finally:
            self._started.put_nowait(None)
