"""A replica that speaks."""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from deployments.replicas.model import ModelDeployment
from deployments.replicas.timing import speech_timed
from deployments.replicas.turns import DeadlineScheduler
from models.audio import AudioChunk
from models.errors import EngineError
from models.loading import load_tts
from models.tts.base import KeepingPacks, Rehearsing, Resting, SynthesisRequest, TTSEngine
from models.tts.word_times import cut
from pipelines.bridge import iterate_in_thread

MAX_LANES = 4
REHEARSE_AFTER_S = 10.0  # when the other models of the machine have loaded, too
REST_S = 0.5  # between the parts of a rehearsal, and after somebody has spoken
KEEPS_S = 2.0  # so long after somebody has spoken, the engine keeps its memory

logger = logging.getLogger(__name__)


class TTSDeployment(ModelDeployment[TTSEngine]):
    """One text-to-speech engine."""

    def __init__(self) -> None:
        super().__init__(load_tts)
        self._turns = DeadlineScheduler(MAX_LANES, "tts", lambda: self.engine().lanes, _is_nothing)
        self._speaking = 0  # requests
        self._rehearsal: asyncio.Task[None] | None = None
        self._resting: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        await super().reconfigure(user_config)
        await self.stop_rehearsing()
        engine = self.engine()
        if isinstance(engine, Rehearsing):
            self._rehearsal = asyncio.create_task(self._rehearse(engine), name="rehearse")

    async def synthesize(
        self, request: SynthesisRequest, caller: str | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Speech of one sentence, piece by piece, for the request `caller`. Raises EngineError."""
        with self.serving(caller) as engine:
            line = self._turns.line(request.slack_s)
            speech = speech_timed(lambda: engine.synthesize(request))
            chunks = iterate_in_thread(lambda: speech, line)
            self._speaking += 1
            try:
                async with aclosing(chunks):
                    async for chunk in chunks:
                        line.spoke(chunk.duration_s)
                        for part in cut(chunk):  # here, since what is made must not wait for a turn
                            yield part
            finally:
                self._speaking -= 1
                line.leave()
                self._rest_soon(engine)

    async def forget_pack(self, digest: str) -> None:
        """Each replica is told, when a voice was deleted."""
        if self._loaded is not None and isinstance(engine := self.engine(), KeepingPacks):
            engine.forget_pack(digest)

    def _rest_soon(self, engine: TTSEngine) -> None:
        """Has the engine give back its memory, unless somebody speaks again."""
        if not isinstance(engine, Resting) or self._speaking:
            return
        if self._resting is not None:
            self._resting.cancel()
        self._resting = asyncio.create_task(self._rest(engine), name="rest")

    async def _rest(self, engine: Resting) -> None:
        await asyncio.sleep(KEEPS_S)
        if not self._speaking:
            await asyncio.to_thread(engine.rest)

    async def stop_rehearsing(self) -> None:
        """Returns when nothing is rehearsed any more, but for the step in the thread."""
        while (rehearsal := self._rehearsal) is not None:  # another swap may begin one meanwhile
            self._rehearsal = None
            rehearsal.cancel()
            await asyncio.gather(rehearsal, return_exceptions=True)

    async def _rehearse(self, engine: Rehearsing) -> None:
        """While nobody speaks; a request that comes waits for one step at most."""
        await asyncio.sleep(REHEARSE_AFTER_S)
        line = self._turns.line(math.inf)
        steps = iterate_in_thread(engine.rehearse, line)
        try:
            async with aclosing(steps):
                async for _ in steps:
                    if isinstance(engine, Resting) and not self._speaking:
                        await asyncio.to_thread(engine.rest)
                    await asyncio.sleep(REST_S)
                    while self._speaking:
                        await asyncio.sleep(REST_S)
        except (EngineError, RuntimeError):  # the next request would tell its caller
            logger.exception("rehearsal_failed")
        finally:
            line.leave()


def _is_nothing(item: object) -> bool:
    """An empty chunk, by which an engine says that it is at work."""
    return isinstance(item, AudioChunk) and not len(item.pcm)
