"""Text to speech."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from models.audio import AudioChunk
from models.info import VoiceInfo


@dataclass(frozen=True, slots=True)
class PackRef:
    """A voice pack that an engine may have seen before: half a megabyte, not sent each time."""

    digest: str  # SHA-256 of the bytes, in hexadecimal digits
    data: bytes | None = None  # as models.tts.voice_pack writes it


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """One sentence to speak. Crosses processes."""

    text: str  # normalised; digits stay where no library spells the language (espeak-ng reads them)
    voice: str  # VoiceInfo.key
    language: str  # ISO 639-1 code of `text`
    speed: float = 1.0  # tempo ratio, 0.5 to 2.0; ignored unless the engine has native_speed
    stability: float = 1.0  # 0.6 most expressive, 1.5 most consistent
    timings: bool = False  # whether chunks carry the times of their words
    slack_s: float = 0.0  # how long the caller can wait before a listener hears a gap
    pack: PackRef | None = None  # speaks with it in place of `voice`, where the engine takes packs


class TTSEngine(Protocol):
    """Turns text into speech. One shared instance; all per-request state lives in the generator."""

    sample_rate: int  # Hz
    native_speed: bool  # whether `SynthesisRequest.speed` is honoured
    lanes: int  # calls from different threads that run side by side; more would only wait

    def voices(self) -> Sequence[VoiceInfo]:
        """Every voice that `synthesize` accepts."""
        ...

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        """Yields consecutive pieces of mono speech at `sample_rate`; closing it stops the work.

        An empty piece says that the work goes on; it lets another request have the next turn.
        Raises UnknownVoice, UnsupportedLanguage or PackMissing before the first piece.
        """
        ...


@runtime_checkable
class KeepingPacks(Protocol):
    """An engine that remembers the packs that came with requests."""

    def forget_pack(self, digest: str) -> None:
        """Of a voice that was deleted; does nothing for one that is not known."""
        ...


@runtime_checkable
class Rehearsing(Protocol):
    """An engine that meets something for the first time faster when nobody waits for it."""

    def rehearse(self) -> Generator[AudioChunk, None, None]:
        """Does so in steps: an empty chunk says that the work goes on, another that a part is done.

        It may be left at any step, and need not be called.
        """
        ...


@runtime_checkable
class Resting(Protocol):
    """An engine that keeps memory from one request to the next."""

    def rest(self) -> None:
        """Gives that back; the next request needs it again. Blocking, and safe at any time."""
        ...
