"""Services over engines without weights and a migrated database."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from api.services import Models, Services, build_services
from configs.load import load_yaml
from configs.schema.transcription import ListeningConfig
from configs.settings import Settings
from models.registry import CHAT, EMBEDDING, GRAMMAR_CHECK, STT, TTS, VAD, load_model
from models.weights.store import WeightStore
from pipelines.limits.limits import SharedLimits
from pipelines.ports import ChatModel, EmbeddingModel, STTModel, TTSModel
from tests.engines import ECHO, LETTERS, SCRIPTED, TONE
from tests.kept_decoder import KeptDecoder
from tests.local_ports import LocalChatModel, LocalEmbeddingModel, LocalSTTModel, LocalTTSModel
from tests.migrated import migrate
from tests.models.configured import configured
from tests.models.speaker.bands import BandsEngine
from tests.pipelines.stt.listening_doubles import ScriptedTurnDetector


def local_services(
    settings: Settings,
    speakers: Mapping[str, TTSModel] | None = None,
    chat_models: Mapping[str, ChatModel] | None = None,
    limits: SharedLimits | None = None,
    transcriber: STTModel | None = None,
    embedders: Mapping[str, EmbeddingModel] | None = None,
) -> Services:
    """The tone, scripted and echo engines behind the real pipelines, or other `speakers`,
    `chat_models`, `transcriber` and `embedders`.

    Without `limits` the process counts by itself.
    """
    weights = _no_weights()
    migrate(settings.database_url)
    encoder = BandsEngine()
    transcriber = transcriber or LocalSTTModel(*load_model(STT, SCRIPTED, weights), encoder)
    models = Models(
        speakers={"tone": LocalTTSModel(*load_model(TTS, TONE, weights))}
        if speakers is None
        else speakers,
        transcribers={"scripted": transcriber},
        transcriber=transcriber,
        chat_models={"echo": LocalChatModel(*load_model(CHAT, ECHO, weights))}
        if chat_models is None
        else chat_models,
        embedders={"letters": LocalEmbeddingModel(*load_model(EMBEDDING, LETTERS, weights))}
        if embedders is None
        else embedders,
        vad=configured(VAD, "webrtc"),
        live_vad=configured(VAD, Path(load_yaml(ListeningConfig, "listening").vad).name),
        turn_detector=ScriptedTurnDetector,
        speaker_encoder=BandsEngine,
        grammar=lambda: configured(GRAMMAR_CHECK, "harper"),
    )
    return build_services(settings, models, KeptDecoder(), limits)


@cache
def _no_weights() -> WeightStore:
    """One for all, since each reads the catalogue."""
    return WeightStore(Path("unused"))
