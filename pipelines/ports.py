"""What the pipelines call. Deployment handles and local engines both fit these shapes."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Protocol

from models.audio import AudioChunk
from models.errors import EngineError
from models.info import ModelInfo
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest


class Port(Protocol):
    """What all of them have."""

    async def describe(self) -> ModelInfo:
        """What is loaded now; cached for a few seconds. Raises EngineLost when nothing is up."""
        ...


async def describe_all(ports: Iterable[Port]) -> list[ModelInfo | None]:
    """What each has loaded now, asked at once; None for one that is down."""
    return list(await asyncio.gather(*map(_describe, ports)))


async def _describe(port: Port) -> ModelInfo | None:
    try:
        return await port.describe()
    except EngineError:
        return None


class TTSModel(Port, Protocol):
    """One text-to-speech model."""

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        """Speech of one sentence; closing the generator stops the work. Raises EngineError."""
        ...

    async def forget_voice(self, digest: str) -> None:
        """Drops the voice pack of a deleted voice from the cache of every replica.

        Raises EngineError when not all of them answered.
        """
        del digest  # a model that takes no voice packs has none


class STTModel(Port, Protocol):
    """One speech-to-text model."""

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        """The text of one stretch of speech. Raises EngineError."""
        ...


class ChatModel(Port, Protocol):
    """One language model."""

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """The answer as it grows; closing the generator stops generation. Raises EngineError."""
        ...
