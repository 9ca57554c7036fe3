"""A replica that listens."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from deployments.model import ModelDeployment
from deployments.timing import batch_timed
from deployments.urgent_first import Results, UrgentFirst
from models.errors import EngineError
from models.loading import load_stt
from models.stt.base import STTEngine, Transcript, TranscriptionRequest

MAX_LANES = 16


class STTDeployment(ModelDeployment[STTEngine]):
    """One speech-to-text engine; the most urgent of the waiting requests goes first."""

    def __init__(self) -> None:
        super().__init__(load_stt)
        self._threads = ThreadPoolExecutor(MAX_LANES, thread_name_prefix="stt")
        self._queue = UrgentFirst(self._decode, lambda: min(self.engine().lanes, MAX_LANES))

    async def transcribe(
        self, request: TranscriptionRequest, caller: str | None = None
    ) -> Transcript:
        """The text of one stretch of speech, for the request `caller`. Raises EngineError."""
        with self.serving(caller):
            return await self._queue.submit(request)

    async def _decode(self, requests: list[TranscriptionRequest]) -> Results:
        loop = asyncio.get_running_loop()
        with batch_timed(requests):
            return await loop.run_in_executor(self._threads, decode, self.engine(), requests)


def decode(engine: STTEngine, requests: list[TranscriptionRequest]) -> Results:
    """Decodes a batch; when one request spoils it, decodes them one by one.

    So an error reaches only the request that caused it.
    """
    try:
        return list(engine.transcribe(requests))
    except EngineError as error:
        if len(requests) == 1:
            return [error]
    return [decode(engine, [request])[0] for request in requests]
