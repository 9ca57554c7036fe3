"""Text to speech: the interface of its engines, and the table of their voices."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from configs.schema.models.tts import VoiceConfig
from models.audio import AudioChunk
from models.base import Engine, Interruption, PackKind, VoiceInfo
from models.errors import UnknownVoice, UnsupportedLanguage


@dataclass(frozen=True, slots=True)
class PackRef:
    """A voice pack by its digest; its half megabyte is sent only to an engine that lacks it."""

    digest: str  # SHA-256 of the bytes, in hexadecimal digits
    data: bytes | None = None  # a pack of the kind that the engine declares


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One sentence to synthesise. Sent between processes."""

    text: str  # normalised; has digits only in languages that espeak-ng alone can spell out
    voice: str  # VoiceInfo.key
    language: str  # ISO 639-1 code of `text`
    speed: float = 1.0  # tempo ratio, 0.5 to 2.0; ignored without the capability native_speed
    stability: float = 1.0  # 0.6 most expressive, 1.5 most consistent
    timings: bool = False  # whether chunks carry the times of their words
    # Seconds until the listener hears an underrun; relative, because processes share no clock.
    deadline_s: float = 0.0
    pack: PackRef | None = None  # replaces `voice`; needs the capability takes_voice_packs
    owner: str = ""  # the tenant: replicas share their time fairly between tenants
    phonemes: tuple[tuple[int, int, str], ...] = ()  # spans: start and end in `text`, and IPA
    interruption: Interruption = field(default_factory=Interruption, compare=False)

    def symbols(self, read: Callable[[str], str], convert: Callable[[str], str]) -> str:
        """Return the phonemes of `text` by `read`, and of spans with given IPA by `convert`."""
        parts: list[str] = []
        spans = [(0, 0, ""), *self.phonemes, (len(self.text), 0, "")]
        for (_, start, _), (end, _, ipa) in pairwise(spans):
            between = self.text[start:end]
            gaps = [" " if end.isspace() else "" for end in (between[:1], between[-1:])]
            parts += [gaps[0], read(between.strip()), gaps[1], convert(ipa) if ipa else ""]
        return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TTSCapabilities:
    """The capabilities of a text-to-speech engine."""

    sample_rate: int  # Hz
    languages: tuple[str, ...]  # ISO 639-1 codes
    streaming: bool = False  # yields audio before a sentence is synthesised completely
    word_times: bool = False  # word times of the model; else estimated from numbers of letters
    native_speed: bool = False  # honours `SynthesisRequest.speed`
    slowest_speed: float = 0.5  # tempo ratio below which stretched audio is better
    takes_voice_packs: bool = False  # accepts a voice pack with a request
    pack: PackKind = "style"  # kind of the voice packs
    crosses_languages: bool = False  # each of its voices speaks all of its languages
    phonemes: bool = False  # honours `SynthesisRequest.phonemes`, and has `phonemes`
    max_concurrency: int = 1  # calls that run in parallel; more would only wait
    device: str = "cpu"


class VoiceTable(dict[str, VoiceInfo]):
    """Voices by key; an unknown key raises UnknownVoice."""

    def __init__(self, voices: Iterable[VoiceConfig] = (), engine: str = "") -> None:
        """`voices` are those of the configuration; `engine` is the name in the registry."""
        for voice in voices:
            described = voice.model_dump(include=set(VoiceConfig.model_fields))
            self[voice.key] = VoiceInfo(engine, **described)

    def __missing__(self, key: str) -> VoiceInfo:
        raise UnknownVoice(f"no voice {key!r}")

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO 639-1 codes, sorted."""
        return tuple(sorted({voice.language for voice in self.values()}))

    def speaking(self, key: str, language: str) -> VoiceInfo:
        """Returns the voice of that key, for engines whose voices speak only their own language.
        Raises UnknownVoice, or UnsupportedLanguage if the voice speaks another language than
        `language`."""
        voice = self[key]
        if language != voice.language:
            raise UnsupportedLanguage(
                f"voice {voice.name!r} speaks {voice.language!r}, not {language!r}"
            )
        return voice


class TTSEngine(Engine, ABC):
    """Synthesises speech. All state of a request is local to its generator."""

    capabilities: TTSCapabilities
    _voices: VoiceTable

    def voices(self) -> Sequence[VoiceInfo]:
        """Every voice that `synthesize` accepts without a voice pack."""
        return tuple(self._voices.values())

    @abstractmethod
    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Yields consecutive pieces of mono speech; closing the generator stops the synthesis. At
        an empty piece, which only marks progress, the scheduler may switch to another request.
        Raises UnknownVoice, UnsupportedLanguage or PackMissing before the first piece."""

    def phonemes(self, request: SynthesisRequest) -> str:
        """Returns the symbols that `synthesize` speaks, including those of `request.phonemes`.
        Empty without the capability. Raises as `synthesize`."""
        return ""

    def warm_up(self) -> Generator[AudioChunk, None, None]:
        """Does slow first-time work in advance, such as compiling kernels for usual lengths. An
        empty chunk marks progress, a chunk with audio a completed part. Optional; the generator can
        be closed at any step."""
        yield from ()

    def forget_voice(self, digest: str) -> None:
        """Drops the cached voice pack of that digest, if any, because its voice was deleted. No-op
        without takes_voice_packs: nothing is cached."""
