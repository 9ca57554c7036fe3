"""The base class of engines, and the descriptions of loaded models and their voices: the source
of `GET /models` and of the voice list."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal
from uuid import NAMESPACE_URL, uuid5

from configs.schema.base import StrictModel

ModelKind = Literal["tts", "stt", "chat"]
Tier = Literal["fast", "quality"]
VoiceGender = Literal["male", "female"]
Accent = Literal["American", "British", "Indian", "Neutral"]
PackKind = Literal["style", "recording", "transcribed recording"]
"""What a voice pack is: a style of Kokoro, or a recording, without or with its transcript."""

_VOICE_NAMESPACE = uuid5(NAMESPACE_URL, "urn:antiphon:voice")


class Interruption:
    """Ends the calls that compute for a request when its caller leaves; set from any thread."""

    def __init__(self) -> None:
        self._is_set = False
        self._ends: list[Callable[[], None]] = []

    def set(self) -> None:
        self._is_set = True
        for end in self._ends:
            end()

    def add(self, end: Callable[[], None]) -> None:
        """`end` ends a call that begins now."""
        self._ends.append(end)
        if self._is_set:
            end()


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """A voice that a loaded engine has."""

    engine: str  # name of the engine in the registry
    key: str  # the engine's own name of the voice, such as "af_heart"
    name: str  # display name
    language: str  # ISO 639-1 code
    gender: VoiceGender
    accent: Accent
    description: str | None = None
    categories: tuple[str, ...] = ()
    custom_id: str | None = None  # the id of a workspace's custom voice

    @property
    def voice_id(self) -> str:
        """A UUID that is the same on every machine and in every release."""
        return self.custom_id or str(uuid5(_VOICE_NAMESPACE, f"{self.engine}/{self.key}"))


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded model. Sent between processes."""

    id: str  # what clients name, such as "svc/slm-135m-q4"
    kind: ModelKind
    engine: str
    owned_by: str
    created: int  # Unix seconds of the weights' publication
    languages: tuple[str, ...] = ()  # ISO 639-1 codes
    aliases: tuple[str, ...] = ()
    device: str = "cpu"  # where it computes
    config: str = ""  # the name of its configuration
    description: str | None = None  # what its users have to know
    tier: Tier | None = None  # tts only
    sample_rate: int | None = None  # Hz; tts only
    native_speed: bool = False  # tts only: the engine changes tempo itself
    real_time_factor: float = 0.0  # tts only: seconds of work for a second of speech
    crosses_languages: bool = False  # tts only: each of its voices speaks all of its languages
    phonemes: bool = False  # tts only: speaks phonemes in IPA
    takes_voice_packs: bool = False  # tts only: accepts a voice pack with a request
    pack: PackKind = "style"  # tts only: of these packs
    voices: tuple[VoiceInfo, ...] = ()  # tts only
    character_errors: tuple[tuple[str, float], ...] = ()  # stt only: percent, by language
    context_tokens: int | None = None  # chat only
    pausable: bool = False  # chat only: an answer may be paused while it is spoken
    is_asleep: bool = False  # scaled to zero: the next request loads it
    fallback: str | None = None  # chat only: the model that answers while this one cannot
    is_loaded: bool = True  # False until its first load has succeeded: only its names are known
    is_awaited: bool = False  # its weights are still fetched, and no other model answers meanwhile


class Engine:
    """A model in memory, built as `cls(config, weights)` and shared by all requests.

    Each kind has a subclass in `models/<kind>/base.py` with its methods, and a dataclass of
    `capabilities`, which an engine sets at the latest in its constructor. Optional methods have
    defaults, so that callers need not check for them.
    """

    config: ClassVar[type[StrictModel]]  # set by an engine that the registry does not list

    def release_memory(self) -> None:
        """Frees memory that is kept between requests; the next request allocates it again.

        Blocking, and safe at any time.
        """

    def check_device(self) -> None:
        """Raises the error of a GPU that has failed, after which no request can succeed.

        Blocking; called after a request has failed.
        """
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
            torch.cuda.synchronize()
