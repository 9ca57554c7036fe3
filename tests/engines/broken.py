"""Engines on a device that fails, as a GPU does."""

from collections.abc import AsyncGenerator, Generator, Sequence

from models.audio import AudioChunk
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from tests.engines.echo import EchoEngine
from tests.engines.scripted import ScriptedEngine
from tests.engines.tone import ToneEngine

TOO_LONG = 3  # requests of a batch
LOUD = 0.9


class Device:
    """Raises the error of the device, if it has one."""

    error: Exception | None = None

    @classmethod
    def use(cls) -> None:
        if cls.error is not None:
            raise cls.error


class BrokenRecogniser(ScriptedEngine):
    """Has memory for fewer than TOO_LONG requests of a batch, and for none that is loud."""

    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        Device.use()
        if len(requests) >= TOO_LONG or any(request.pcm.max() > LOUD for request in requests):
            raise MemoryError("CUDA out of memory")
        return super().transcribe(requests)


class BrokenVoice(ToneEngine):
    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        Device.use()
        yield from super().synthesize(request)


class VoiceOfPacks(BrokenVoice):
    """Has no voices of its own, so that only the device can be asked."""

    def check_device(self) -> None:
        Device.use()


class BrokenChat(EchoEngine):
    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        Device.use()
        async for delta in super().generate(request):
            yield delta
