"""The base class of engines, and the descriptions of models and voices that clients list."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal
from uuid import NAMESPACE_URL, uuid5

from configs.schema.base import StrictModel
from models.device import check_gpus

ModelKind = Literal["tts", "stt", "chat", "embedding"]
Tier = Literal["fast", "quality"]
VoiceGender = Literal["male", "female"]
Accent = Literal["American", "British", "Indian", "Neutral"]
PackKind = Literal["style", "recording", "transcribed recording"]
"""Content of a voice pack: a Kokoro style vector, or a recording with or without a transcript."""

_VOICE_NAMESPACE = uuid5(NAMESPACE_URL, "urn:antiphon:voice")


class Interruption:
    """Cancellation of a request: ends its running calls when the caller leaves. Thread-safe."""

    def __init__(self) -> None:
        self._is_set = False
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        self._is_set = True
        for callback in self._callbacks:
            callback()

    def add(self, callback: Callable[[], None]) -> None:
        """Registers a callback that ends a running call; called at once if already interrupted."""
        self._callbacks.append(callback)
        if self._is_set:
            callback()


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice of a loaded engine."""

    engine: str  # name of the engine in the registry
    key: str  # the engine's own name for the voice, such as "af_heart"
    name: str  # display name
    language: str  # ISO 639-1 code
    gender: VoiceGender
    accent: Accent
    description: str | None = None
    categories: tuple[str, ...] = ()
    custom_id: str | None = None  # the id of a workspace's custom voice
    is_native: bool = True  # trained on speakers of its language
    character_errors: float | None = None  # percent, where measured with a recogniser

    @property
    def voice_id(self) -> str:
        """A UUID that is the same on every machine and in every release."""
        return self.custom_id or str(uuid5(_VOICE_NAMESPACE, f"{self.engine}/{self.key}"))


class RunningCanary(StrictModel):
    """A new model that gets a share of the requests to another model."""

    id: str
    share: float  # share of the requests, 0 to 1


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Description of a model. Sent between processes."""

    id: str  # name in requests, such as "svc/slm-135m-q4"
    kind: ModelKind
    engine: str
    owned_by: str
    created: int  # when the weights were published, Unix seconds
    languages: tuple[str, ...] = ()  # ISO 639-1 codes
    aliases: tuple[str, ...] = ()
    device: str = "cpu"  # where it computes; "cuda" also for other GPUs, as in PyTorch
    config: str = ""  # name of its configuration
    description: str | None = None  # notes for its users
    tier: Tier | None = None  # tts only
    sample_rate: int | None = None  # Hz; tts only
    native_speed: bool = False  # tts only: the engine changes tempo itself
    slowest_speed: float = 0.5  # tts only: to this tempo ratio
    real_time_factor: float = 0.0  # tts only: seconds of compute per second of speech
    crosses_languages: bool = False  # tts only: each of its voices speaks all of its languages
    phonemes: bool = False  # tts only: accepts phonemes in IPA
    takes_voice_packs: bool = False  # tts only: accepts a voice pack with a request
    pack: PackKind = "style"  # tts only: kind of the voice packs
    voices: tuple[VoiceInfo, ...] = ()  # tts only
    character_errors: tuple[tuple[str, float], ...] = ()  # stt only: percent by language
    context_tokens: int | None = None  # chat and embedding only
    dimensions: int | None = None  # embedding only
    pausable: bool = False  # chat only: an answer may be paused while it is spoken
    is_asleep: bool = False  # scaled to zero: the next request loads it
    fallback: str | None = None  # chat only: the model that answers while this one cannot
    is_loaded: bool = True  # False until its first load: only its names are known
    is_awaited: bool = False  # weights are being fetched, and no fallback answers
    problem: str | None = None  # why its first load failed
    canary: RunningCanary | None = None


class Engine:
    """A model in memory, shared by all requests, and built as `cls(config, weights)`, which raises
    EngineError (WeightsMissing or WeightsCorrupt for its weights). Each kind has a subclass in
    `models/<kind>/base.py` with its methods, and a dataclass of `capabilities`, which an engine
    sets at the latest in its constructor. Optional methods have defaults."""

    config: ClassVar[type[StrictModel]]  # set by an engine that the registry does not list
    clears_memory = False  # its library zeroes memory that may never be used

    def close(self) -> None:
        """Frees memory, the GPU's too, that dropping references would not free; running requests
        raise EngineLost. Blocking."""

    def release_memory(self) -> None:
        """Frees memory kept between requests; the next request allocates it again. Blocking; safe
        at any time."""

    def check_device(self) -> None:
        """Raises the error of a device that has failed, after which no request can succeed. Blocks,
        forever if the device hangs; called every few seconds while requests run."""
        check_gpus()
