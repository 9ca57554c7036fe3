"""From the name of a configuration to a loaded engine and what it says of itself."""

from pydantic import TypeAdapter

from configs.load import load_yaml
from configs.schema.models.grammar_check import HarperConfig
from configs.schema.models.llm import ChatConfig
from configs.schema.models.quality import QualityConfig
from configs.schema.models.speaker import SpeakerConfig
from configs.schema.models.stt import STTConfig
from configs.schema.models.tts import TTSConfig
from configs.schema.models.vad import VADConfig
from configs.schema.models.watermark import PerthConfig
from models.grammar_check.base import GrammarEngine
from models.info import ModelInfo
from models.llm.base import ChatEngine
from models.quality.base import QualityEngine
from models.registry import (
    CHAT_ENGINES,
    GRAMMAR_ENGINES,
    QUALITY_ENGINES,
    SPEAKER_ENGINES,
    STT_ENGINES,
    TTS_ENGINES,
    VAD_ENGINES,
    WATERMARK_ENGINES,
    engine_class,
)
from models.speaker.base import SpeakerEncoder
from models.stt.base import STTEngine
from models.tts.base import TTSEngine
from models.vad.base import VADEngine
from models.watermark.base import Watermark
from models.weights.store import WeightStore


def load_tts(
    name: str, weights: WeightStore, *, threads: int | None = None
) -> tuple[TTSEngine, ModelInfo]:
    """Loads the model of `configs/<name>.yaml`. Raises EngineError or ValidationError.

    `threads` takes the place of what the configuration says, if it says anything.
    """
    config: TTSConfig = load_yaml(TypeAdapter(TTSConfig), name)
    if threads is not None and "threads" in type(config).model_fields:
        config = config.model_copy(update={"threads": threads})
    engine: TTSEngine = engine_class(TTS_ENGINES, config.engine)(config, weights)
    voices = tuple(engine.voices())
    return engine, ModelInfo(
        id=config.id,
        kind="tts",
        engine=config.engine,
        owned_by=config.owned_by,
        created=config.created,
        aliases=config.aliases,
        # An engine that has only voices of packs says by itself what it speaks.
        languages=getattr(engine, "languages", None)
        or tuple(sorted({voice.language for voice in voices})),
        tier=config.tier,
        sample_rate=engine.sample_rate,
        native_speed=engine.native_speed,
        real_time_factor=config.real_time_factor,
        crosses_languages=getattr(engine, "crosses_languages", False),
        takes_packs=getattr(engine, "takes_packs", False),
        voices=voices,
    )


def load_stt(name: str, weights: WeightStore) -> tuple[STTEngine, ModelInfo]:
    """Loads the model of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config: STTConfig = load_yaml(TypeAdapter(STTConfig), name)
    engine: STTEngine = engine_class(STT_ENGINES, config.engine)(config, weights)
    return engine, ModelInfo(
        id=config.id,
        kind="stt",
        engine=config.engine,
        owned_by=config.owned_by,
        created=config.created,
        aliases=config.aliases,
        languages=engine.languages,
        # Where it really computes, when the engine knows better than its configuration.
        device=str(getattr(engine, "device", getattr(config, "device", "cpu"))),
    )


def load_chat(name: str, weights: WeightStore) -> tuple[ChatEngine, ModelInfo]:
    """Loads the model of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config: ChatConfig = load_yaml(TypeAdapter(ChatConfig), name)
    engine: ChatEngine = engine_class(CHAT_ENGINES, config.engine)(config, weights)
    return engine, ModelInfo(
        id=config.id,
        kind="chat",
        engine=config.engine,
        owned_by=config.owned_by,
        created=config.created,
        aliases=config.aliases,
        languages=config.languages,
        context_tokens=engine.context_tokens,
    )


def load_vad(name: str, weights: WeightStore) -> VADEngine:
    """Loads the detector of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config: VADConfig = load_yaml(TypeAdapter(VADConfig), name)
    engine: VADEngine = engine_class(VAD_ENGINES, config.engine)(config, weights)
    return engine


def load_speaker_encoder(name: str, weights: WeightStore) -> SpeakerEncoder:
    """Loads the encoder of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config: SpeakerConfig = load_yaml(TypeAdapter(SpeakerConfig), name)
    engine: SpeakerEncoder = engine_class(SPEAKER_ENGINES, config.engine)(config, weights)
    return engine


def load_watermark(name: str, weights: WeightStore) -> Watermark:
    """Loads the watermark of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config = load_yaml(PerthConfig, name)
    engine: Watermark = engine_class(WATERMARK_ENGINES, config.engine)(config, weights)
    return engine


def load_quality(name: str, weights: WeightStore) -> QualityEngine:
    """Loads the engine of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config: QualityConfig = load_yaml(TypeAdapter(QualityConfig), name)
    engine: QualityEngine = engine_class(QUALITY_ENGINES, config.engine)(config, weights)
    return engine


def load_grammar(name: str, weights: WeightStore) -> GrammarEngine:
    """Loads the engine of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config = load_yaml(HarperConfig, name)
    engine: GrammarEngine = engine_class(GRAMMAR_ENGINES, config.engine)(config, weights)
    return engine
