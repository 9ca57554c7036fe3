"""Engines on a device that fails, as a GPU does."""

import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from threading import Event
from typing import Any, ClassVar
from weakref import WeakSet

import numpy as np

from models.audio import AudioChunk
from models.llm.base import GenerationDelta, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from tests.engines.echo import EchoEngine
from tests.engines.scripted import ScriptedEngine
from tests.engines.tone import ToneConfig, ToneEngine

TOO_LONG = 3  # requests of a batch
LOUD = 0.9
ILLEGAL = "CUDA error: an illegal memory access was encountered"
BREAK = "break"  # a message after which the device has failed
LONG = "long"  # a text for which there is too little memory


def cuda_error(text: str = ILLEGAL) -> RuntimeError:
    """Returns the error of PyTorch, or its base class where PyTorch is not installed."""
    kind: type[RuntimeError] = getattr(sys.modules.get("torch"), "AcceleratorError", RuntimeError)
    return kind(text)


class Device:
    """Raises the error of the device, if it has one."""

    error: Exception | None = None
    answers: ClassVar = Event()  # false while it hangs
    answers.set()

    @classmethod
    def use(cls) -> None:
        cls.answers.wait()
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
    """Has no memory for the text LONG."""

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        Device.use()
        if request.text == LONG:
            raise RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for buffer")
        yield from super().synthesize(request)


class IdleVoice(ToneEngine):
    """Only asks the device."""

    def check_device(self) -> None:
        Device.use()


class BrokenChat(EchoEngine):
    """Fails at the message BREAK and, as a GPU does, at every later one."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationDelta, None]:
        if request.messages[-1].content == BREAK:
            Device.error = cuda_error()
        if request.messages[-1].content == LONG:
            raise MemoryError("std::bad_alloc")
        Device.use()
        async for delta in super().generate(request):
            yield delta


class Unloadable(ToneEngine):
    """Allocates its weights, and then fails to load."""

    def __init__(self, config: ToneConfig, weights: WeightStore) -> None:
        super().__init__(config, weights)
        self.networks = Network(self)
        raise cuda_error("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Unrehearsed(ToneEngine):
    """Loads, and has too little memory for its rehearsal."""

    def __init__(self, config: ToneConfig, weights: WeightStore) -> None:
        super().__init__(config, weights)
        self.networks = Network(self)

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        yield from super().synthesize(request)
        raise cuda_error("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Network:
    """Weights that refer to their engine, as modules of libraries do."""

    live: ClassVar[WeakSet["Network"]] = WeakSet()

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.weights = np.zeros(1000)
        self.live.add(self)
