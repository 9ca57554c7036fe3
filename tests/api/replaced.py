"""Services with some of their members replaced."""

from dataclasses import replace
from typing import Any

from api.services import Services
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from models.vad.base import VADEngine
from pipelines.limits.limits import SharedLimits
from pipelines.ports import STTModel
from pipelines.stt.file import TranscriptionPipeline
from pipelines.stt.session import LiveTranscriptionPipeline
from pipelines.tts.pipeline import SpeechPipeline
from tests.pipelines.stt.listening_doubles import LoudnessVAD, ScriptedTurnDetector


def with_speech(services: Services, **members: Any) -> Services:
    return replace(services, speech=replace(services.speech, **members))


def with_platform(services: Services, **members: Any) -> Services:
    return replace(services, platform=replace(services.platform, **members))


def with_infrastructure(services: Services, **members: Any) -> Services:
    return replace(services, infrastructure=replace(services.infrastructure, **members))


def with_synthesis(services: Services, pipeline: SpeechPipeline) -> Services:
    """With another speech pipeline in every member that uses one."""
    speech = services.speech
    changed = with_speech(
        services,
        synthesis=replace(speech.synthesis, pipeline=pipeline),
        openai=replace(speech.openai, voices=pipeline.directory),
    )
    custom = replace(services.voices.custom, directory=pipeline.directory)
    return replace(changed, voices=replace(services.voices, custom=custom))


def with_transcription(services: Services, pipeline: TranscriptionPipeline) -> Services:
    """With another transcription pipeline for files."""
    transcription = replace(services.speech.transcription, pipeline=pipeline)
    return with_speech(services, transcription=transcription)


def with_request_limits(services: Services, **members: Any) -> Services:
    """With another plan, store or configuration of rate limits."""
    changed = replace(services.platform.request_limits, **members)
    return with_platform(services, request_limits=changed)


def with_admission(services: Services, **changes: Any) -> Services:
    """With other numbers of admission control, as the limits of attempts and of requests read."""
    admission = services.platform.request_limits.admission.model_copy(update=changes)
    return with_request_limits(services, admission=admission)


def with_limits(services: Services, limits: SharedLimits) -> Services:
    """With another store of rate limits; the socket registry keeps its own."""
    return with_infrastructure(with_request_limits(services, limits=limits), limits=limits)


def with_listening(
    services: Services, transcriber: STTModel, vad: VADEngine | None = None, **limits: float
) -> Services:
    """With another recogniser and VAD for live transcription, and changed limits."""
    config = load_yaml(ListeningConfig, "listening")
    changed = config.model_copy(update={"limits": config.limits.model_copy(update=limits)})
    pipeline = LiveTranscriptionPipeline(
        transcriber, vad or LoudnessVAD(), changed, ScriptedTurnDetector
    )
    return with_speech(services, live_transcription=pipeline)
