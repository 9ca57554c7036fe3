"""The deployment of speech-to-text models."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import partial

import numpy as np

from configs.settings import weights_dir
from deployments.replicas.canary import Loaded
from deployments.replicas.model import ModelDeployment
from deployments.replicas.rehearsal import rehearse_recognition
from deployments.replicas.scheduling import URGENCY_NAMES, PriorityBatcher, Results
from models.batch_limit import BatchLimit
from models.device import as_engine_error, is_out_of_memory
from models.memory import give_back
from models.registry import SPEAKER, STT, load_once
from models.speaker.base import SpeakerEncoder
from models.stt.base import STT_SAMPLE_RATE, STTEngine, Transcript, TranscriptionRequest, add_voices
from models.weights.store import WeightStore
from telemetry import metrics
from telemetry.tracing import Attributes, CallHeaders

MAX_CONCURRENCY = 16
SPEAKER_CONFIG = "speaker/resemblyzer"


class STTDeployment(ModelDeployment[STTEngine]):
    """One speech-to-text engine; waiting requests are scheduled by urgency."""

    def __init__(self) -> None:
        super().__init__(STT, rehearse_recognition)
        self._threads = ThreadPoolExecutor(MAX_CONCURRENCY, thread_name_prefix="stt")
        self._limit = BatchLimit()
        self._queue = self._new_queue(self.engine)
        self._canary_queue = self._new_queue(lambda: self.engines()[-1])
        self._speaker_encoder = load_once(SPEAKER, SPEAKER_CONFIG, WeightStore(weights_dir()))

    async def transcribe(
        self, request: TranscriptionRequest, caller: CallHeaders | None = None
    ) -> Transcript:
        """Transcribe speech for the request of `caller`. Raises EngineError."""
        attributes: Attributes = {
            "antiphon.audio_seconds": len(request.pcm) / STT_SAMPLE_RATE,
            "antiphon.urgency": URGENCY_NAMES[request.urgency],
        }

        async def hear(engine: STTEngine) -> AsyncGenerator[Transcript, None]:
            queue = self._queue if engine is self.engine() else self._canary_queue
            yield await queue.submit(request)

        async with aclosing(self.serve(caller, "transcribe", attributes, hear)) as transcripts:
            [transcript] = [transcript async for transcript in transcripts]
            return transcript

    async def try_engine(self, loaded: Loaded[STTEngine]) -> None:
        noise = np.random.default_rng(0).normal(0, 0.1, STT_SAMPLE_RATE).astype(np.float32)
        await asyncio.to_thread(loaded[0].transcribe, [TranscriptionRequest(noise)])

    def load(self) -> float:
        return self._queue.load + self._canary_queue.load

    def _new_queue(self, engine: Callable[[], STTEngine]) -> PriorityBatcher:
        return PriorityBatcher(
            partial(self._decode, engine),
            lambda: min(engine().capabilities.max_concurrency, MAX_CONCURRENCY),
            lambda: self._limit.of(engine().capabilities.max_batch_size),
        )

    async def _decode(
        self, engine: Callable[[], STTEngine], requests: list[TranscriptionRequest]
    ) -> Results:
        """Decode a batch of requests of the same urgency."""
        loop, began = asyncio.get_running_loop(), time.perf_counter()
        results = await loop.run_in_executor(
            self._threads, decode, engine(), requests, self._speaker_encoder, self._limit
        )
        elapsed_s = time.perf_counter() - began
        audio_s = sum(len(request.pcm) for request in requests) / STT_SAMPLE_RATE
        urgency = URGENCY_NAMES[requests[0].urgency]
        metrics.stt_decode_seconds.labels(urgency).observe(elapsed_s)
        metrics.stt_audio_seconds.labels(urgency).inc(audio_s)
        if audio_s:
            metrics.stt_real_time_factor.observe(elapsed_s / audio_s)
        return results


def decode(
    engine: STTEngine,
    requests: list[TranscriptionRequest],
    encoder: Callable[[], SpeakerEncoder],
    limit: BatchLimit,
) -> Results:
    """Decode a batch; after an error, decode each half of it, so that only the request that causes
    the error fails."""
    try:
        transcripts = engine.transcribe(requests)
        return [
            add_voices(request, transcript, encoder()) if request.voice_windows else transcript
            for request, transcript in zip(requests, transcripts, strict=True)
        ]
    except Exception as error:  # any library may raise
        is_full = is_out_of_memory(error)
        if len(requests) == 1:
            if is_full:
                limit.lift()
            return [as_engine_error(error)]
    if is_full:
        limit.shrink(len(requests))
        give_back()
    half = len(requests) // 2
    parts = requests[:half], requests[half:]
    return [result for part in parts for result in decode(engine, part, encoder, limit)]
