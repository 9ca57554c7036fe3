"""The options of a live session and the events that it emits."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from models.errors import EngineError
from models.stt.base import Word


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a client asks of one session."""

    languages: tuple[str, ...] = ()  # codes of the engine; empty detects
    utterance_end_ms: int = 500
    interim_ms: int | None = None  # None: no interims
    no_speech_threshold: float = 0.6


@dataclass(frozen=True, slots=True)
class LiveSpeechStarted:
    """An utterance began."""

    at_s: float  # seconds of audio, as all times of a session


@dataclass(frozen=True, slots=True)
class LiveTranscript:
    """The text of an utterance: a final one, or an interim one of its beginning."""

    sentence_id: int  # increases; an interim has the one of its final
    final: bool
    text: str  # empty: speech without words, or a hallucination
    language: str  # ISO code
    confidence: float  # 0 to 1
    words: tuple[Word, ...]  # of a final
    start_s: float
    duration_s: float
    latency_s: float  # since the end of the utterance was known; of an interim: since its audio
    cut: bool = False  # the utterance was too long, and goes on with the next sentence_id


@dataclass(frozen=True, slots=True)
class FailedUtterance:
    """The engine failed on an utterance; the session goes on."""

    sentence_id: int
    error: EngineError
    duration_s: float = 0.0  # of its audio


LiveEvent: TypeAlias = LiveSpeechStarted | LiveTranscript | FailedUtterance
Emit: TypeAlias = Callable[[LiveEvent], Awaitable[None]]
