"""The deployment of text-to-speech models."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from typing import Any

from deployments.autoscaling import VOICE_FULL
from deployments.replicas.canary import Loaded
from deployments.replicas.model import ModelDeployment
from deployments.replicas.rehearsal import rehearse_speech, sentence_of
from models.audio import AudioChunk, cut
from models.base import Interruption
from models.errors import EngineError
from models.fairness.scheduling import DeadlineScheduler
from models.memory import give_back
from models.registry import TTS
from models.runtimes.upstream import UpstreamService
from models.tts.base import SynthesisRequest, TTSEngine
from pipelines.tasks import iterate_in_thread
from telemetry import metrics, tracing
from telemetry.tracing import CallHeaders

MAX_CONCURRENCY = 32
WARM_UP_AFTER_S = 10.0  # by then the other models of the machine are loaded, too
PAUSE_S = 0.5  # pause between the parts of a warm-up, and after a request
KEEP_MEMORY_S = 2.0  # how long the engine keeps its memory after the last request

logger = logging.getLogger(__name__)


class TTSDeployment(ModelDeployment[TTSEngine]):
    """One text-to-speech engine."""

    def __init__(self) -> None:
        super().__init__(TTS, rehearse_speech)
        self._scheduler = DeadlineScheduler(
            MAX_CONCURRENCY,
            "tts",
            lambda: min(engine.capabilities.max_concurrency for engine in self.engines()),
            # An empty chunk only marks progress.
            lambda item: isinstance(item, AudioChunk) and not len(item.pcm),
            is_remote=lambda: all(isinstance(engine, UpstreamService) for engine in self.engines()),
        )
        self._running = 0  # number of running requests
        self._warm_up: asyncio.Task[None] | None = None
        self._release: asyncio.Task[None] | None = None

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        await super().reconfigure(user_config)
        await self.stop_warm_up()
        if self._loaded is None:  # it waits for its weights
            return
        self._warm_up = asyncio.create_task(self._run_warm_up(self.engine()), name="warm up")

    async def synthesize(
        self, request: SynthesisRequest, caller: CallHeaders | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Speak a sentence for the request of `caller`, as a stream. Raises EngineError."""
        attributes = {"antiphon.characters": len(request.text)}
        spoken = self.serve(caller, "synthesize", attributes, partial(self._synthesize, request))
        async with aclosing(spoken):
            async for chunk in spoken:
                yield chunk

    async def _synthesize(
        self, request: SynthesisRequest, engine: TTSEngine
    ) -> AsyncGenerator[AudioChunk, None]:
        executor = self._scheduler.executor(request.deadline_s, request.owner)
        # One for each attempt: after a canary has failed, another engine speaks the same request.
        interruption = Interruption()
        request = replace(request, interruption=interruption)
        speech = speech_timed(engine, request, time.perf_counter())
        chunks = iterate_in_thread(speech, executor)
        self._running += 1
        try:
            async with aclosing(chunks):
                async for chunk in chunks:
                    executor.extend_deadline(chunk.duration_s)
                    for part in cut(chunk):  # here, so that finished audio waits for no turn
                        yield part
        finally:
            self._running -= 1
            interruption.set()
            executor.leave()
            self._release_soon(engine)

    async def phonemes(self, request: SynthesisRequest, caller: CallHeaders | None = None) -> str:
        """Return the phonemes of a sentence, in the engine's symbols, for the request of
        `caller`."""

        async def read(engine: TTSEngine) -> AsyncGenerator[str, None]:
            yield await asyncio.to_thread(engine.phonemes, request)

        async with aclosing(self.serve(caller, "phonemes", {}, read)) as symbols:
            return "".join([symbol async for symbol in symbols])

    async def try_engine(self, loaded: Loaded[TTSEngine]) -> None:
        engine, info = loaded
        if (request := sentence_of(info)) is not None:
            await asyncio.to_thread(list, engine.synthesize(request))

    def load(self) -> float:
        return self._running / VOICE_FULL

    async def forget_voice(self, digest: str) -> None:
        """Drop the voice pack of a deleted voice. This is called on every replica."""
        for engine in self.engines() if self._loaded is not None else ():
            engine.forget_voice(digest)

    def _release_soon(self, engine: TTSEngine) -> None:
        """Free the engine's memory after KEEP_MEMORY_S, unless another request arrives."""
        if self._running:
            return
        if self._release is not None:
            self._release.cancel()
        self._release = asyncio.create_task(self._release_memory(engine), name="release memory")

    async def _release_memory(self, engine: TTSEngine) -> None:
        await asyncio.sleep(KEEP_MEMORY_S)
        if not self._running:
            await asyncio.to_thread(engine.release_memory)

    async def stop_warm_up(self) -> None:
        """Cancel the warm-up; its last step may still run in the thread."""
        while (warm_up := self._warm_up) is not None:  # another swap may start a warm-up meanwhile
            self._warm_up = None
            warm_up.cancel()
            await asyncio.gather(warm_up, return_exceptions=True)

    async def _run_warm_up(self, engine: TTSEngine) -> None:
        """Warm up between requests, which wait for one step at most."""
        await asyncio.sleep(WARM_UP_AFTER_S)
        executor = self._scheduler.executor(math.inf)
        steps = iterate_in_thread(engine.warm_up(), executor)
        try:
            async with aclosing(steps):
                async for _ in steps:
                    if not self._running:
                        await asyncio.to_thread(engine.release_memory)
                    await asyncio.sleep(PAUSE_S)
                    while self._running:
                        await asyncio.sleep(PAUSE_S)
        except (EngineError, RuntimeError):  # the next request would raise it too
            logger.exception("rehearsal_failed")
        finally:
            executor.leave()
            await asyncio.to_thread(give_back)  # measured: 27 MB


def speech_timed(
    engine: TTSEngine, request: SynthesisRequest, asked: float
) -> Generator[AudioChunk, None, None]:
    """Yield the engine's speech, and record metrics; runs in the engine's thread. `asked` is the
    time of the request, by time.perf_counter()."""
    resumed = time.perf_counter()
    metrics.tts_queue_seconds.observe(resumed - asked)
    computed_s = audio_s = 0.0
    try:
        with closing(engine.synthesize(request)) as chunks:
            for chunk in chunks:
                computed_s += time.perf_counter() - resumed
                if not audio_s and chunk.duration_s:
                    tracing.note("first_audio_seconds", time.perf_counter() - asked)
                audio_s += chunk.duration_s
                yield chunk
                resumed = time.perf_counter()
    finally:
        if audio_s:
            metrics.tts_audio_seconds.inc(audio_s)
            tracing.annotate({"antiphon.audio_seconds": audio_s})
            metrics.tts_real_time_factor.observe(computed_s / audio_s)
