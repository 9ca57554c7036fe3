"""What the pipelines call. Deployment handles and local engines both fit these shapes."""

from collections.abc import AsyncGenerator
from typing import Protocol

from models.audio import AudioChunk
from models.info import ModelInfo
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest


class Speaker(Protocol):
    """One text-to-speech model."""

    async def describe(self) -> ModelInfo:
        """What is loaded now; cached for a few seconds. Raises EngineLost when nothing is up."""
        ...

    def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        """Speech of one sentence; closing the generator stops the work. Raises EngineError."""
        ...


class Transcriber(Protocol):
    """One speech-to-text model."""

    async def describe(self) -> ModelInfo: ...

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        """The text of one stretch of speech. Raises EngineError."""
        ...


class ChatModel(Protocol):
    """One language model."""

    async def describe(self) -> ModelInfo: ...

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        """The answer as it grows; closing the generator stops generation. Raises EngineError."""
        ...
