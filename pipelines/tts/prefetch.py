"""The pieces of one text on their way through the engine."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from models.audio import AudioChunk
from models.tts.base import SynthesisRequest
from pipelines.ports import TTSModel
from pipelines.text.cleaning import TextChunk

IN_FLIGHT = 2  # pieces of one text; handle streams are not bounded by themselves
_TOGETHER_S = 0.5
# An engine may give a piece all at once, in chunks that come one after the other. Who has all of it
# can wait for longer than who has its first chunk.
_SETTLES_S = 0.03

Turn = Callable[[], Coroutine[Any, Any, Callable[[], None]]]


class InFlightChunk:
    """One piece while it is made; its audio waits here for those before it."""

    def __init__(self, piece: TextChunk, speaker: TTSModel, request: SynthesisRequest) -> None:
        self.piece = piece
        self.heard = asyncio.Event()  # its first sound was taken, or it has none
        self.waiting_s = 0.0  # of its audio, that has come and was not taken
        self._chunks: asyncio.Queue[AudioChunk | None] = asyncio.Queue()
        self.task = asyncio.create_task(self._fly(speaker, request))

    async def _fly(self, speaker: TTSModel, request: SynthesisRequest) -> None:
        try:
            async with aclosing(speaker.synthesize(request)) as chunks:
                async for chunk in chunks:
                    self.waiting_s += chunk.duration_s
                    self._chunks.put_nowait(chunk)
        finally:
            self._chunks.put_nowait(None)

    async def arrivals(self) -> AsyncGenerator[tuple[list[AudioChunk], bool], None]:
        """What has been made since, up to about 0.5 s, and whether that was the end.

        The last answer may be empty. Raises EngineError.
        """
        while True:
            arrived: list[AudioChunk] = []
            chunk = await self._chunks.get()
            while chunk is not None:
                arrived.append(chunk)
                enough = sum(one.duration_s for one in arrived) >= _TOGETHER_S
                if enough or self._chunks.empty():
                    break
                chunk = self._chunks.get_nowait()
            if chunk is None:
                await self.task  # raises what the engine raised
            self.waiting_s -= sum(one.duration_s for one in arrived)
            yield arrived, chunk is None
            if chunk is None:
                return


async def prefetch(
    first: TextChunk,
    following: Callable[[], Coroutine[Any, Any, TextChunk | None]],
    launch: Callable[[TextChunk, float], InFlightChunk],
    turn: Turn,
) -> AsyncGenerator[InFlightChunk, None]:
    """The flights of a text in order, at most IN_FLIGHT at once.

    The next one starts once the one before has been heard: it delays no first sound, and is there
    when that one ends. `turn` is awaited before each. `launch` is also told how many seconds of
    audio have come and were not taken. Closing it ends all.
    """
    launched: asyncio.Queue[InFlightChunk | None] = asyncio.Queue()
    places = asyncio.Semaphore(IN_FLIGHT)
    flying: set[InFlightChunk] = set()

    async def launch_all() -> None:
        piece: TextChunk | None = first
        try:
            while piece is not None:
                await places.acquire()
                done = await turn()
                try:
                    flight = launch(piece, sum(one.waiting_s for one in flying))
                except BaseException:
                    done()
                    raise
                flight.task.add_done_callback(partial(_call, done))
                flying.add(flight)
                launched.put_nowait(flight)
                await flight.heard.wait()
                await asyncio.wait({flight.task}, timeout=_SETTLES_S)
                piece = await following()
        finally:
            launched.put_nowait(None)

    launching = asyncio.create_task(launch_all())
    try:
        while (flight := await launched.get()) is not None:
            yield flight
            flight.heard.set()
            flying.discard(flight)
            places.release()
        await launching  # raises what it raised
    finally:
        tasks = [launching, *(flight.task for flight in flying)]
        for task in tasks:
            task.cancel()
        # Awaited, so that no replica works for a caller who has left.
        await asyncio.gather(*tasks, return_exceptions=True)


def _call(done: Callable[[], None], task: "asyncio.Task[None]") -> None:
    del task
    done()
