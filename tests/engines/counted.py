"""The engines without weights, each of which counts the steps of its work in this process."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace

from models.audio import AudioChunk
from models.embedding.base import EmbeddingRequest, Embeddings
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from tests.engines.echo import EchoEngine
from tests.engines.letters import LettersEngine
from tests.engines.scripted import ScriptedEngine
from tests.engines.tone import ToneEngine

STEP_S = 0.02  # about a token, or a tenth of a second of speech


@dataclass
class Steps:
    """The work of all counted engines."""

    made: int = 0
    slowness: float = 1.0  # of the recogniser
    live: int = 0  # calls of engines that have not ended
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def call(self) -> Iterator[None]:
        with self._lock:
            self.live += 1
        try:
            yield
        finally:
            with self._lock:
                self.live -= 1

    def make(self) -> None:
        with self._lock:
            self.made += 1


class CountedTone(ToneEngine):
    """A step for each chunk of audio."""

    steps: Steps

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        with self.steps.call():
            for chunk in super().synthesize(request):
                self.steps.make()
                time.sleep(STEP_S)
                yield chunk

    def phonemes(self, request: SynthesisRequest) -> str:
        with self.steps.call():
            self.steps.make()
            time.sleep(STEP_S)
            return ""


class CountedScripted(ScriptedEngine):
    """A step for two seconds of speech."""

    steps: Steps

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        with self.steps.call():
            for request in requests:
                for _ in range(1 + len(request.pcm) // (2 * STT_SAMPLE_RATE)):
                    self.steps.make()
                    time.sleep(STEP_S * self.steps.slowness)
            return super().transcribe(requests)


class CountedEcho(EchoEngine):
    """A step for each word."""

    steps: Steps

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        with self.steps.call():
            async with aclosing(super().generate(request)) as deltas:
                async for delta in deltas:
                    self.steps.make()
                    await asyncio.sleep(STEP_S)
                    yield delta


class CountedLetters(LettersEngine):
    """A step for each input."""

    steps: Steps

    def embed(self, request: EmbeddingRequest) -> Generator[Embeddings, None, None]:
        with self.steps.call():
            for item in request.inputs:
                self.steps.make()
                time.sleep(STEP_S)
                yield from super().embed(replace(request, inputs=(item,)))
