"""Fakes of live transcription: a VAD by loudness, and a scripted recogniser and turn detector."""

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from models.audio import Pcm
from models.base import ModelInfo
from models.stt.base import Segment, Transcript, TranscriptionRequest, Word
from models.turn_detection.base import TurnDetectionEngine
from models.vad.base import Probabilities, VADCapabilities, VADEngine, VADStream
from tests.patience import until

FRAME = 512


class LoudnessVAD(VADEngine):
    """Detects speech in every loud frame."""

    capabilities = VADCapabilities(frame_samples=FRAME)

    def start_stream(self) -> VADStream:
        return self

    def accept_many(self, frames: NDArray[np.float32]) -> Probabilities:
        return np.asarray(np.abs(frames).max(axis=1) > 0.1, np.float32)

    def probabilities(self, pcm: Pcm) -> Probabilities:
        return self.accept_many(pcm[: len(pcm) // FRAME * FRAME].reshape(-1, FRAME))


class ScriptedTurnDetector(TurnDetectionEngine):
    """Answers with the next of its probabilities, and with the last one from then on."""

    def __init__(self, *answers: float) -> None:
        self.answers = list(answers or (1.0,))
        self.heard: list[Pcm] = []
        self.error: Exception | None = None  # raised by the next questions

    def completeness(self, pcm: Pcm) -> float:
        self.heard.append(pcm)
        if self.error is not None:
            raise self.error
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class FakeTranscriber:
    """Transcribes each request as its number, once `gate` is set."""

    def __init__(self) -> None:
        self.requests: list[TranscriptionRequest] = []
        self.cancelled: list[int] = []
        self.errors: list[Exception] = []  # raised by the next requests, in order
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: Callable[[int, TranscriptionRequest], Transcript] = transcript

    async def describe(self) -> ModelInfo:
        return ModelInfo("svc/fake", "stt", "fake", "us", 0, languages=("de", "en", "jw"))

    async def transcribe(self, request: TranscriptionRequest) -> Transcript:
        number = len(self.requests)
        self.requests.append(request)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if self.errors:
            raise self.errors.pop(0)
        return self.answer(number, request)

    @property
    def urgencies(self) -> list[int]:
        return [request.urgency for request in self.requests]


async def requested(fake: FakeTranscriber, seconds: float) -> None:
    """Waits for a request with so much audio."""
    await until(lambda: any(len(one.pcm) >= seconds * 16_000 for one in fake.requests))


def transcript(
    number: int, request: TranscriptionRequest, text: str = "", logprob: float = -0.1
) -> Transcript:
    """One segment over the whole request."""
    seconds = len(request.pcm) / 16_000
    text = text or f"text {number}"
    words = (Word(text, 0.3, seconds, 0.9),) if request.options.words else ()
    segment = Segment(text, 0.0, seconds, logprob, 0.0, words)
    return Transcript(request.language or "en", 0.9, (segment,))


def tone(hz: float, seconds: float) -> Pcm:
    """A speaker, to `BandsEngine`."""
    times = np.arange(round(seconds * 16_000)) / 16_000
    return np.asarray(0.5 * np.sin(2 * np.pi * hz * times), np.float32)


def loud(seconds: float) -> Pcm:
    """A square wave of 250 Hz: every frame is as loud, and none has an offset."""
    return np.where(np.arange(round(seconds * 16_000)) // 32 % 2, -0.5, 0.5).astype(np.float32)


def quiet(seconds: float) -> Pcm:
    return np.zeros(round(seconds * 16_000), np.float32)
