"""A replica that speaks."""

from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

from deployments.model import ModelDeployment
from models.audio import AudioChunk
from models.loading import load_tts
from models.tts.base import SynthesisRequest, TTSEngine
from pipelines.bridge import iterate_in_thread

# Sentences beyond these wait for a thread; with two, one long sentence does not hold up the next.
SYNTHESIS_THREADS = 2


class TTSDeployment(ModelDeployment[TTSEngine]):
    """One text-to-speech engine."""

    def __init__(self) -> None:
        super().__init__(load_tts)
        self._threads = ThreadPoolExecutor(SYNTHESIS_THREADS, thread_name_prefix="tts")

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        """Speech of one sentence, piece by piece. Raises EngineError."""
        engine = self.engine()
        chunks = iterate_in_thread(lambda: engine.synthesize(request), self._threads)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk
