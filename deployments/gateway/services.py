"""Builds the services of a gateway over the handles of its model directory."""

from dataclasses import replace

from api.services import Models, Services, build_services
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from configs.settings import Settings
from deployments.gateway.handles import ModelDirectory
from models.registry import (
    GRAMMAR_CHECK,
    SPEAKER,
    TURN_DETECTION,
    VAD,
    WATERMARK,
    load,
    load_once,
)
from models.weights.store import WeightStore
from pipelines.limits.limits import SharedLimits
from telemetry.reports import OwnReports

VAD_CONFIG = "vad/silero"
TURN_DETECTION_CONFIG = "turn_detection/smart_turn"
SPEAKER_CONFIG = "speaker/resemblyzer"
GRAMMAR_CONFIG = "grammar/harper"
WATERMARK_CONFIG = "watermark/perth"


def gateway_services(
    settings: Settings,
    directory: ModelDirectory,
    reports: OwnReports | None = None,
    limits: SharedLimits | None = None,
) -> Services:
    """Does not wait for models: routes answer 503 until their model is ready."""
    weights = WeightStore(settings.weights_dir)
    live = load_yaml(ListeningConfig, "listening").vad
    vad = load(VAD, VAD_CONFIG, weights)
    models = Models(
        speakers=directory.speakers,
        transcribers=directory.transcribers,
        transcriber=directory.transcriber,
        chat_models=directory.chat_models,
        problems=directory.problems,
        vad=vad,
        # One instance is enough if both are the same: its state is in its streams.
        live_vad=vad if live == VAD_CONFIG else load(VAD, live, weights),
        turn_detector=load_once(TURN_DETECTION, TURN_DETECTION_CONFIG, weights),
        speaker_encoder=load_once(SPEAKER, SPEAKER_CONFIG, weights),
        grammar=lambda: load(GRAMMAR_CHECK, GRAMMAR_CONFIG, weights),
        # Loaded now: a service that must watermark speech must not start without it.
        watermark=(
            None if settings.watermark == "off" else load(WATERMARK, WATERMARK_CONFIG, weights)
        ),
    )
    services = build_services(settings, models, limits=limits)
    if reports is None:
        return services
    return replace(services, infrastructure=replace(services.infrastructure, reports=reports))
