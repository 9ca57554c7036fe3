"""Builds the services of a gateway over the handles of its model directory."""

from dataclasses import replace
from typing import Any

from api.services import Models, Services, build_services
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from configs.settings import Settings
from deployments.gateway.cluster_control import ServeControl
from deployments.gateway.handles import ModelDirectory, ModelIndexHandle
from models.errors import EngineError
from models.registry import GRAMMAR_CHECK, SPEAKER, TURN_DETECTION, VAD, WATERMARK, load, load_once
from models.weights.store import WeightStore
from pipelines.limits.cluster import ClusterStore
from pipelines.limits.limits import SharedLimits, StoreLost
from pipelines.limits.redis import RedisStore
from telemetry.reports import OwnReports

VAD_CONFIG = "vad/silero"
TURN_DETECTION_CONFIG = "turn_detection/smart_turn"
SPEAKER_CONFIG = "speaker/resemblyzer"
GRAMMAR_CONFIG = "grammar/harper"
WATERMARK_CONFIG = "watermark/perth"


# A hop takes a millisecond, but longer while all cores of the machine are busy.
ASK_TIMEOUT_S = 0.5


def gateway_limits(settings: Settings, index: ModelIndexHandle) -> SharedLimits:
    """Return limits over Redis if it is configured; otherwise ModelIndex counts."""
    if settings.redis_url is not None:
        return SharedLimits(RedisStore(settings.redis_url))

    async def ask(method: str, *arguments: Any) -> Any:
        try:
            return await index.call(method, *arguments, timeout_s=ASK_TIMEOUT_S)
        except EngineError as error:
            raise StoreLost(type(error).__name__) from None

    return SharedLimits(ClusterStore(ask), timeout_s=ASK_TIMEOUT_S, most_failures=2)


def gateway_services(
    settings: Settings,
    directory: ModelDirectory,
    reports: OwnReports | None = None,
    limits: SharedLimits | None = None,
) -> Services:
    """Build the services without waiting for models: routes answer 503 until their model is
    ready."""
    weights = WeightStore(settings.weights_dir)
    live = load_yaml(ListeningConfig, "listening").vad
    vad = load(VAD, VAD_CONFIG, weights)
    models = Models(
        speakers=directory.speakers,
        transcribers=directory.transcribers,
        transcriber=directory.transcriber,
        chat_models=directory.chat_models,
        embedders=directory.embedders,
        problems=directory.problems,
        infos=directory.infos,
        arrivals=directory.arrivals,
        vad=vad,
        # If both use the same detector, one instance is enough: the state is in its streams.
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
    own = services.infrastructure
    control = ServeControl() if reports and settings.operator_token else None
    shared = replace(
        own,
        reports=reports or own.reports,
        differences=directory.differences,
        cluster=control,
    )
    return replace(services, infrastructure=shared)
