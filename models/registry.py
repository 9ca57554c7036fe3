"""The registry: kinds of engines, the types of their configurations, and the modules of the engines
(`engines.yaml`). It loads an engine together with its description.

A configuration may also have `engine: "package.module:Class"`, an engine that the table lacks: a
subclass of the kind's base class, which names the type of its configurations in `config`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

from configs.load import adapter_of, explain, load_yaml
from configs.schema.models.embedding import MiniLMConfig
from configs.schema.models.in_process import (
    HarperConfig,
    PerthConfig,
    QualityConfig,
    SmartTurnConfig,
    SpeakerConfig,
    VADConfig,
)
from configs.schema.models.llm import ChatConfig
from configs.schema.models.stt import STTConfig
from configs.schema.models.tts import TTSConfig
from models.base import Engine, ModelInfo
from models.embedding.base import EmbeddingEngine
from models.errors import UnknownEngine, UnsupportedFeature
from models.grammar_check.base import GrammarEngine
from models.llm.base import ChatEngine
from models.quality.base import QualityEngine
from models.speaker.base import SpeakerEncoder
from models.stt.base import STTEngine
from models.tts.base import TTSEngine
from models.turn_detection.base import TurnDetectionEngine
from models.vad.base import VADEngine
from models.watermark.base import Watermark
from models.weights.store import WeightStore

T = TypeVar("T")
EngineT = TypeVar("EngineT", bound=Engine, covariant=True)
LoadedT = TypeVar("LoadedT", bound=Engine)
ModelT = TypeVar("ModelT", bound=TTSEngine | STTEngine | ChatEngine | EmbeddingEngine)

ENGINES = load_yaml(dict[str, dict[str, str]], str(Path(__file__).with_name("engines.yaml")))


@dataclass(frozen=True, slots=True)
class EngineKind(Generic[EngineT]):
    """Engines with the same interface. A module is imported only when its engine is chosen."""

    name: str
    base: Any = field(repr=False)  # base class of the engines
    config: Any = field(repr=False)  # pydantic type of their configurations

    def read(self, name: str) -> Any:
        """Reads the configuration `configs/<name>.yaml`, or the file at a path that ends in .yaml.
        Raises ValidationError, or what `engine_class` raises for an engine that is not listed."""
        data = load_yaml(dict[str, Any], name)
        if ":" not in (engine := str(data.get("engine"))):
            return adapter_of(self.config).validate_python(data)
        if (shape := getattr(self.engine_class(engine), "config", None)) is None:
            raise UnknownEngine(f"{engine!r} has no `config`, the type of its configurations")
        return adapter_of(shape).validate_python(data)

    def engine_class(self, name: str) -> Any:
        """Return the class of the engine `name`. Raises UnknownEngine, or UnsupportedFeature if its
        module cannot be imported, for example because a library of its profile is not installed."""
        modules = ENGINES[self.name]
        module, _, attribute = modules.get(name, name).partition(":")
        try:
            # Imported on a separate stack: a library may keep an error of its import, as vLLM does,
            # and with it the frames that called the import. A frame of an engine would keep the
            # engine in memory after a swap, as was measured with the processes of vLLM.
            with ThreadPoolExecutor(max_workers=1) as importer:
                imported = importer.submit(import_module, module).result()
            engine_class = getattr(imported, attribute, None)
        except Exception as error:  # any library or engine may raise
            if (getattr(error, "name", None) or module).partition(".")[0] == "models":
                raise  # a missing module of this project is a bug
            profile = "; PROFILE=gpu has its libraries" if name in modules else ""
            profile = "; PROFILE=gpu VLLM=1 has its libraries" if name == "vllm" else profile
            raise UnsupportedFeature(
                f"the engine {name!r} cannot be imported: {explain(error)}{profile}"
            ) from error
        if not (isinstance(engine_class, type) and issubclass(engine_class, self.base)):
            raise UnknownEngine(f"{name!r} names no subclass of {self.base.__name__}")
        return engine_class


TTS: EngineKind[TTSEngine] = EngineKind("tts", TTSEngine, TTSConfig)
STT: EngineKind[STTEngine] = EngineKind("stt", STTEngine, STTConfig)
CHAT: EngineKind[ChatEngine] = EngineKind("chat", ChatEngine, ChatConfig)
EMBEDDING: EngineKind[EmbeddingEngine] = EngineKind("embedding", EmbeddingEngine, MiniLMConfig)
VAD: EngineKind[VADEngine] = EngineKind("vad", VADEngine, VADConfig)
TURN_DETECTION: EngineKind[TurnDetectionEngine] = EngineKind(
    "turn_detection", TurnDetectionEngine, SmartTurnConfig
)
SPEAKER: EngineKind[SpeakerEncoder] = EngineKind("speaker", SpeakerEncoder, SpeakerConfig)
WATERMARK: EngineKind[Watermark] = EngineKind("watermark", Watermark, PerthConfig)
GRAMMAR_CHECK: EngineKind[GrammarEngine] = EngineKind("grammar_check", GrammarEngine, HarperConfig)
QUALITY: EngineKind[QualityEngine] = EngineKind("quality", QualityEngine, QualityConfig)
LISTED: tuple[EngineKind[Any], ...] = (TTS, STT, CHAT, EMBEDDING)
"""The kinds that have deployments, and that clients can list."""
_IN_PROCESS = (VAD, TURN_DETECTION, SPEAKER, WATERMARK, GRAMMAR_CHECK, QUALITY)
KINDS: dict[str, EngineKind[Any]] = {kind.name: kind for kind in (*LISTED, *_IN_PROCESS)}


def kind_of(name: str) -> EngineKind[Any]:
    """Returns the kind, of LISTED, of a configuration: CHAT unless its engine belongs to another.
    Raises FileNotFoundError."""
    engine = load_yaml(dict[str, Any], name).get("engine")
    return next((kind for kind in LISTED if engine in ENGINES[kind.name]), CHAT)


def load(kind: EngineKind[LoadedT], name: str, weights: WeightStore) -> LoadedT:
    """Loads the engine of `configs/<name>.yaml`. Raises EngineError or ValidationError."""
    config = kind.read(name)
    engine: LoadedT = kind.engine_class(config.engine)(config, weights)
    return engine


def load_once(kind: EngineKind[LoadedT], name: str, weights: WeightStore) -> Callable[[], LoadedT]:
    """Returns a function that loads the engine at its first call, for all threads."""
    return once(partial(load, kind, name, weights))


def once(make: Callable[[], T]) -> Callable[[], T]:
    """Returns a function that calls `make` once and shares the result with all threads."""
    lock = Lock()
    cached_make = cache(make)

    def get() -> T:
        with lock:  # `cache` alone lets concurrent first calls run `make` twice
            return cached_make()

    return get


def load_model(
    kind: EngineKind[ModelT], name: str, weights: WeightStore, *, threads: int | None = None
) -> tuple[ModelT, ModelInfo]:
    """Loads an engine with the model's description, for the kinds of LISTED; `threads` replaces
    that field of the configuration, if it has one. Raises as `load`, and WeightsCorrupt with the
    remedy when loading fails because the weights have wrong bytes."""
    config = kind.read(name)
    if threads is not None and "threads" in type(config).model_fields:
        config = config.model_copy(update={"threads": threads})
    try:
        engine: ModelT = kind.engine_class(config.engine)(config, weights)
    except Exception:  # a library cannot tell that wrong bytes are the cause
        for artefact in artefacts_of(config):
            weights.verify(artefact)
        raise
    described = {field.name for field in fields(ModelInfo)}
    declared = {
        fact: value for fact, value in asdict(engine.capabilities).items() if fact in described
    }
    if isinstance(engine, TTSEngine):
        declared |= {
            "tier": config.tier,
            "real_time_factor": config.real_time_factor,
            "voices": tuple(engine.voices()),
        }
    return engine, replace(names_of(kind, name, config), is_loaded=True, **declared)


def names_of(kind: EngineKind[ModelT], name: str, config: Any = None) -> ModelInfo:
    """Describes the model of a configuration before it is loaded. Raises as `read`."""
    config = config or kind.read(name)
    return ModelInfo(
        id=config.id,
        kind=kind.name,  # type: ignore[arg-type]  # of LISTED
        engine=config.engine,
        owned_by=config.owned_by,
        created=config.created,
        aliases=config.aliases,
        config=name,
        description=config.description,
        fallback=config.fallback if kind is CHAT else None,
        is_loaded=False,
    )


def artefacts_of(config: Any) -> set[str]:
    """Return the names of the weights that an engine of this configuration and its voices need."""
    return {name for name in _weights_of(config) if not name.startswith("/")}


def files_of(config: Any) -> set[Path]:
    """Return the files that an engine of this configuration reads in place, unverified."""
    return {Path(name) for name in _weights_of(config) if name.startswith("/")}


def size_of(config: Any, store: WeightStore) -> int:
    """Return the size in bytes of the weights and files that an engine of this configuration needs.
    Raises EngineError or OSError."""
    size = sum(store.artefact(name).size_bytes for name in artefacts_of(config))
    return size + sum(file.stat().st_size for file in files_of(config))


_WEIGHTS = ("weights", "voice_weights", "artefact", "vocabulary")


def _weights_of(config: Any) -> set[str]:
    names = {value for name, value in config if name in _WEIGHTS}
    parts = [*getattr(config, "voices", ()), *filter(None, [getattr(config, "draft", None)])]
    return names.union(*map(_weights_of, parts))
