"""Events of a live session, in the order of the protocol."""

from collections.abc import Sequence
from dataclasses import dataclass

from models.errors import EngineError
from models.stt.base import STT_SAMPLE_RATE, Segment, Word
from pipelines.stt.diarization import SpeakerUtterance
from pipelines.stt.file import confidence_of
from pipelines.stt.formatting import separator_of
from pipelines.text.language_names import iso_code


@dataclass(frozen=True, slots=True)
class LiveSpeechStarted:
    at_s: float  # seconds of the session's audio, like all times here
    starts_s: float = 0.0  # start including the padding before the speech


@dataclass(frozen=True, slots=True)
class LiveSpeechStopped:
    """An utterance has ended, for a voice agent; its final transcript follows."""

    at_s: float


@dataclass(frozen=True, slots=True)
class EagerTranscript:
    """Text of an utterance that has probably ended, for a voice agent; speech may still resume."""

    text: str
    confidence: float = 1.0  # 0 to 1
    duration_s: float = 1.0  # length of the speech
    completeness: float | None = None  # completeness of the turn, 0 to 1, if it was judged


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """Speech has continued after a probable end, for a voice agent."""


@dataclass(frozen=True, slots=True)
class LiveTranscript:
    """Text of an utterance: a final transcript, or an interim one of its beginning."""

    sentence_id: int  # increases; interims share it with their final
    final: bool
    text: str  # empty: speech without words, or a hallucination
    language: str  # ISO code
    confidence: float  # 0 to 1
    words: tuple[Word, ...]  # finals only
    start_s: float
    duration_s: float
    latency_s: float  # since the end of the utterance was certain; for interims since their audio
    cut: bool = False  # the utterance was too long, and continues with the next sentence_id
    committed: str = ""  # beginning of the text that no later transcript changes
    turns: tuple[SpeakerUtterance, ...] = ()  # finals only, when speakers were requested
    language_probability: float = 1.0
    is_quiet: bool = False  # finals only: so quiet that words may be missing
    audio_s: float = 0.0  # finals only: length of the audio, with silence around the speech

    @property
    def speaker(self) -> str | None:
        """Speaker of the longest turn."""
        longest = max(self.turns, key=lambda turn: turn.end - turn.start, default=None)
        return None if longest is None else longest.speaker

    @property
    def speakers(self) -> list[str]:
        """Speaker of each word, when speakers were requested."""
        return [turn.speaker for turn in self.turns for _ in turn.words]


@dataclass(frozen=True, slots=True)
class FailedUtterance:
    """The engine failed on an utterance; the session continues."""

    sentence_id: int
    error: EngineError
    duration_s: float = 0.0  # length of its audio
    cut: bool = False  # as in LiveTranscript


LiveEvent = (
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
) -> LiveTranscript:
    """Makes a transcript; `start` and `samples` are of the speech, at STT_SAMPLE_RATE."""
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
    )
