"""Ports over engines in this process, which tests and benchmarks use in place of replicas."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from models.audio import AudioChunk
from models.base import ModelInfo
from models.embedding.base import EmbeddingEngine, EmbeddingRequest, Embeddings
from models.llm.base import ChatEngine, GenerationDelta, GenerationRequest
from models.speaker.base import SpeakerEncoder
from models.stt.base import STTEngine, Transcript, TranscriptionRequest, add_voices
from models.tts.base import SynthesisRequest, TTSEngine
from pipelines.tasks import iterate_in_thread


class LocalTTSModel:
    """The TTSModel port over an engine of this process."""

    def __init__(self, engine: TTSEngine, info: ModelInfo) -> None:
        self._engine = engine
        self._info = info

    async def describe(self) -> ModelInfo:
        return self._info

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        async with aclosing(iterate_in_thread(self._engine.synthesize(request))) as chunks:
            async for chunk in chunks:
                if len(chunk.pcm):
                    yield chunk

    async def phonemes(self, request: SynthesisRequest) -> str:
        return await asyncio.to_thread(self._engine.phonemes, request)

    async def forget_voice(self, digest: str) -> None:
        self._engine.forget_voice(digest)


class LocalSTTModel:
    """The STTModel port over an engine of this process; `encoder` embeds speakers."""

    def __init__(
        self, engine: STTEngine, info: ModelInfo, encoder: SpeakerEncoder | None = None
    ) -> None:
        self._engine = engine
        self._info = info
        self._encoder = encoder

    async def describe(self) -> ModelInfo:
        return self._info

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        (transcript,) = await asyncio.to_thread(self._engine.transcribe, [request])
        if request.voice_windows and self._encoder is not None:
            transcript = await asyncio.to_thread(add_voices, request, transcript, self._encoder)
        return transcript


class LocalEmbeddingModel:
    """The EmbeddingModel port over an engine of this process."""

    def __init__(self, engine: EmbeddingEngine, info: ModelInfo) -> None:
        self._engine = engine
        self._info = info

    async def describe(self) -> ModelInfo:
        return self._info

    async def embed(self, request: EmbeddingRequest) -> AsyncGenerator[Embeddings, None]:
        async with aclosing(iterate_in_thread(self._engine.embed(request))) as batches:
            async for batch in batches:
                yield batch


class LocalChatModel:
    """The ChatModel port over an engine of this process."""

    def __init__(self, engine: ChatEngine, info: ModelInfo) -> None:
        self._engine = engine
        self._info = info

    async def describe(self) -> ModelInfo:
        return self._info

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        return self._engine.generate(request)
