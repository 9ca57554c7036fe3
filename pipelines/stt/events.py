"""The events of a live session, in the order of the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from models.errors import EngineError
from models.stt.base import STT_SAMPLE_RATE, Segment, Word
from pipelines.stt.diarization import SpeakerUtterance
from pipelines.stt.file import confidence_of
from pipelines.stt.formatting import separator_of
from pipelines.text.language_names import iso_code


@dataclass(frozen=True, slots=True)
class LiveSpeechStarted:
    """An utterance began."""

    at_s: float  # seconds of audio, as all times of a session
    starts_s: float = 0.0  # with the padding before the speech


@dataclass(frozen=True, slots=True)
class LiveSpeechStopped:
    """An utterance has ended, for a voice agent; its final transcript follows."""

    at_s: float


@dataclass(frozen=True, slots=True)
class EagerTranscript:
    """The text of an utterance that has probably ended, for a voice agent: what it does with it is
    in vain if the speech resumes."""

    text: str
    confidence: float = 1.0  # 0 to 1
    duration_s: float = 1.0  # of the speech
    completeness: float | None = None  # of the turn, 0 to 1, if the turn detector judged it


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Speech goes on after a probable end, for a voice agent."""


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
    cut: bool = False  # the utterance was too long, and continues with the next sentence_id
    committed: str = ""  # the beginning of the text that no later one takes back
    turns: tuple[SpeakerUtterance, ...] = ()  # of a final, when speakers were asked for
    language_probability: float = 1.0
    is_quiet: bool = False  # of a final: so quiet that words may be missing

    @property
    def speaker(self) -> str | None:
        """Who says most of it."""
        return max(self.turns, key=lambda one: one.end - one.start).speaker if self.turns else None

    @property
    def speakers(self) -> list[str]:
        """Of each word, when speakers were asked for."""
        return [turn.speaker for turn in self.turns for _ in turn.words]


@dataclass(frozen=True, slots=True)
class FailedUtterance:
    """The engine failed on an utterance; the session continues."""

    sentence_id: int
    error: EngineError
    duration_s: float = 0.0  # of its audio


LiveEvent: TypeAlias = (
    LiveSpeechStarted
    | LiveSpeechStopped
    | LiveTranscript
    | FailedUtterance
    | EagerTranscript
    | SpeechResumed
)


def live_transcript(
    sentence_id: int,
    segments: Sequence[Segment],
    language: str,
    *,
    final: bool,
    start: int,
    samples: int,
    latency_s: float,
    cut: bool = False,
    language_probability: float = 1.0,
    is_quiet: bool = False,
) -> LiveTranscript:
    """`start` and `samples` are those of the speech, at STT_SAMPLE_RATE."""
    return LiveTranscript(
        sentence_id=sentence_id,
        final=final,
        text=separator_of(language).join(segment.text for segment in segments),
        language=iso_code(language),
        confidence=confidence_of(segments),
        words=tuple(word for segment in segments for word in segment.words) if final else (),
        start_s=start / STT_SAMPLE_RATE,
        duration_s=samples / STT_SAMPLE_RATE,
        latency_s=latency_s,
        cut=cut,
        language_probability=language_probability,
        is_quiet=is_quiet,
    )
