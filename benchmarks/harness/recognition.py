"""The recogniser of the service in this process: whole recordings and live sessions."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from benchmarks.harness.speech import store
from configs.load import load_yaml
from configs.schema.transcription import (
    DecodingProfile,
    ListeningConfig,
    ProfileName,
    load_profiles,
)
from models.audio import Pcm
from models.base import ModelInfo
from models.registry import STT, VAD, load, load_model
from models.stt.base import STT_SAMPLE_RATE, STTEngine, TranscriptionRequest
from models.stt.options import RecognitionOptions
from models.vad.base import VADEngine
from pipelines.audio.decode.decoder import AudioDecoder
from pipelines.audio.segments import SpeechSegment, find_speech_segments
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.file import DecodedRecording, FileTranscript, TranscriptionPipeline
from pipelines.stt.session import Emit, LiveSession, LiveTranscriptionPipeline
from tests.local_ports import LocalSTTModel

MODEL = "stt/whisper_base"
PLAIN = RecognitionOptions()
ENGLISH = RecognitionOptions("en")
LIVE_ENGLISH = RecognitionOptions(languages=("en",), words=True)


@cache
def _recogniser() -> tuple[STTEngine, ModelInfo]:
    return load_model(STT, MODEL, store())


def bare_engine() -> STTEngine:
    """The recogniser alone."""
    return _recogniser()[0]


def model_info() -> ModelInfo:
    return _recogniser()[1]


@cache
def local_model() -> LocalSTTModel:
    """The port over the recogniser of this process."""
    return LocalSTTModel(bare_engine(), model_info())


@cache
def voice_activity() -> VADEngine:
    return load(VAD, "vad/silero", store())


@cache
def file_pipeline(model: LocalSTTModel | None = None) -> TranscriptionPipeline:
    """The pipeline of recordings."""
    return TranscriptionPipeline(
        model or local_model(), AudioDecoder(), voice_activity(), load_profiles()
    )


@cache
def live_pipeline(
    model: LocalSTTModel | None = None, **detectors: Any
) -> LiveTranscriptionPipeline:
    """The pipeline of live sessions."""
    config = load_yaml(ListeningConfig, "listening")
    return LiveTranscriptionPipeline(model or local_model(), voice_activity(), config, **detectors)


async def transcribe(
    pipeline: TranscriptionPipeline,
    pcm: Pcm,
    options: RecognitionOptions = ENGLISH,
    profile: ProfileName = "general",
) -> FileTranscript:
    """Transcribe a decoded recording as the service does."""
    duration_s = len(pcm) / STT_SAMPLE_RATE
    profiles = load_profiles()
    return await pipeline.transcribe(DecodedRecording(pcm, duration_s, options, profiles[profile]))


def transcribe_alone(
    engine: STTEngine, pcm: Pcm, language: str | None = "en", options: RecognitionOptions = PLAIN
) -> str:
    """The text of the engine alone."""
    (transcript,) = engine.transcribe([TranscriptionRequest(pcm, language, options=options)])
    return " ".join(segment.text for segment in transcript.segments)


def speech_segments(pcm: Pcm, *, min_speech_ms: int, min_silence_ms: int) -> list[SpeechSegment]:
    """Where the voice activity detector hears speech."""
    vad = voice_activity()
    return find_speech_segments(
        vad.probabilities(pcm),
        vad.capabilities.frame_samples,
        len(pcm),
        DecodingProfile(min_speech_ms=min_speech_ms, min_silence_ms=min_silence_ms),
    )


@asynccontextmanager
async def live_session(
    pipeline: LiveTranscriptionPipeline, options: SessionOptions, emit: Emit
) -> AsyncIterator[LiveSession]:
    """A live session, whose last utterance is transcribed when the block ends."""
    session = LiveSession(pipeline, options, emit)
    running = asyncio.create_task(session.run())
    try:
        yield session
        await session.finish()
    finally:
        running.cancel()
        await session.close()


async def play(session: LiveSession, pcm: Pcm, *, step_s: float, in_real_time: bool) -> None:
    """Give audio to a session step by step; in real time, a step comes when it has been spoken."""
    step = round(step_s * STT_SAMPLE_RATE)
    began = time.monotonic()
    for start in range(0, len(pcm), step):
        due = began + (start + step) / STT_SAMPLE_RATE
        await asyncio.sleep(max(0.0, due - time.monotonic()) if in_real_time else 0.0)
        await session.accept_pcm(pcm[start : start + step])
