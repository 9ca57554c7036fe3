"""The registry: kinds of engines, the configurations that they take, and where each engine
lives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, TypeVar

from configs.schema.models.in_process import (
    HarperConfig,
    PerthConfig,
    QualityConfig,
    SpeakerConfig,
    VADConfig,
)
from configs.schema.models.llm import ChatConfig
from configs.schema.models.stt import STTConfig
from configs.schema.models.tts import TTSConfig
from models.base import Engine
from models.errors import UnknownEngine, UnsupportedFeature
from models.grammar_check.base import GrammarEngine
from models.llm.base import ChatEngine
from models.quality.base import QualityEngine
from models.speaker.base import SpeakerEncoder
from models.stt.base import STTEngine
from models.tts.base import TTSEngine
from models.vad.base import VADEngine
from models.watermark.base import Watermark

EngineT = TypeVar("EngineT", bound=Engine, covariant=True)


@dataclass(frozen=True, slots=True)
class EngineKind(Generic[EngineT]):
    """Engines with the same calls. A module is imported only when its engine is chosen."""

    name: str
    folder: str  # of its configurations, under configs/
    config: Any = field(repr=False)  # the pydantic type of those configurations
    engines: Mapping[str, str] = field(repr=False)  # "module:Class" by the name of the engine

    def engine_class(self, name: str) -> Any:
        """The class of the engine `name`; every engine is built as `cls(config, weights)`.

        Raises UnknownEngine, which lists the names there are, or UnsupportedFeature when a library
        of the engine's profile is not installed.
        """
        try:
            module, _, attribute = self.engines[name].partition(":")
        except KeyError:
            known = ", ".join(self.engines)
            raise UnknownEngine(f"no engine {name!r}; available: {known}") from None
        try:
            return getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "models":
                raise  # one of this project, which is no matter of what is installed
            raise UnsupportedFeature(
                f"the engine {name!r} needs {error.name!r} of the GPU profile, which is not"
                " installed"
            ) from error


TTS: EngineKind[TTSEngine] = EngineKind(
    "tts",
    "tts",
    TTSConfig,
    {
        "hibari": "models.tts.hibari:HibariEngine",
        "kokoro": "models.tts.kokoro.engine:KokoroEngine",
        "espeak": "models.tts.espeak.engine:EspeakEngine",
        "vits": "models.tts.piper:VitsEngine",
        "csm": "models.tts.csm.engine:CsmEngine",
        "mms": "models.tts.mms:MmsEngine",
        "tone": "models.tts.tone:ToneEngine",
    },
)
STT: EngineKind[STTEngine] = EngineKind(
    "stt",
    "stt",
    STTConfig,
    {
        "whisper": "models.stt.whisper.engine:WhisperEngine",
        "whisper_transformers": "models.stt.whisper_transformers.engine:TransformersWhisperEngine",
        "scripted": "models.stt.scripted:ScriptedEngine",
    },
)
CHAT: EngineKind[ChatEngine] = EngineKind(
    "chat",
    "llm",
    ChatConfig,
    {
        "llama_cpp": "models.llm.llama_cpp:LlamaCppEngine",
        "transformers": "models.llm.transformers.engine:TransformersEngine",
        "echo": "models.llm.echo:EchoEngine",
    },
)
VAD: EngineKind[VADEngine] = EngineKind(
    "vad",
    "vad",
    VADConfig,
    {
        "silero": "models.vad.silero:SileroEngine",
        "webrtc": "models.vad.webrtc:WebRtcEngine",
    },
)
SPEAKER: EngineKind[SpeakerEncoder] = EngineKind(
    "speaker",
    "speaker",
    SpeakerConfig,
    {
        "resemblyzer": "models.speaker.resemblyzer:ResemblyzerEngine",
        "bands": "models.speaker.bands:BandsEngine",
    },
)
WATERMARK: EngineKind[Watermark] = EngineKind(
    "watermark", "watermark", PerthConfig, {"perth": "models.watermark.perth:PerthWatermark"}
)
GRAMMAR_CHECK: EngineKind[GrammarEngine] = EngineKind(
    "grammar_check", "grammar", HarperConfig, {"harper": "models.grammar_check.harper:HarperEngine"}
)
QUALITY: EngineKind[QualityEngine] = EngineKind(
    "quality", "quality", QualityConfig, {"dnsmos": "models.quality.dnsmos:DnsmosEngine"}
)

ENGINE_KINDS: tuple[EngineKind[Engine], ...] = (
    TTS,
    STT,
    CHAT,
    VAD,
    SPEAKER,
    WATERMARK,
    GRAMMAR_CHECK,
    QUALITY,
)
