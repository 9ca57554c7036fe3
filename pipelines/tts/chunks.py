"""The chunks of a stream of speech."""

from dataclasses import dataclass

from models.audio import AudioChunk


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word of the caller's text and when it sounds, in seconds from the start of the speech."""

    word: str  # the caller's own writing, with its punctuation
    start_s: float
    end_s: float
    text_start: int  # offsets into the caller's text
    text_end: int


@dataclass(frozen=True, slots=True)
class SpokenChunk:
    """Audio, and the words that begin in it when they were asked for."""

    audio: AudioChunk
    words: tuple[TimedWord, ...] = ()
    text_end: int = 0  # characters of the caller's text up to the end of the text chunk
