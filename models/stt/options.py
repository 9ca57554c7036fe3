"""The options of recognition. Each dialect maps its own names to them once; then they pass
unchanged through sockets, files, jobs and pipelines to the engine. The types have the ranges and
check the requests of dialects, so that an error names the caller's own field."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field, StringConstraints

from configs.schema.personal_data import Redaction
from configs.schema.transcription import ProfileName

KeyTerms = Annotated[
    list[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]],
    Field(
        max_length=100, description="Names and rare words that may occur, in the desired spelling."
    ),
]
KnownSpeakers = Annotated[
    bool | Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=100)],
    Field(
        description="Enrolled speakers to identify by name: true for all, or ids from "
        "`GET /speakers`."
    ),
]
ANY_LANGUAGE = "auto"
LANGUAGE = "Language code, or `auto` to detect it (default)."


def named_language(code: str) -> str | None:
    """Returns a caller's language code; None for `auto` and blanks, which mean any language."""
    return None if code.strip().lower() in ("", ANY_LANGUAGE) else code


Probability = Annotated[float, Field(ge=0, le=1)]
SpeakerChoice: TypeAlias = bool | Sequence[str]  # all enrolled, none, or those of these ids


@dataclass(frozen=True, slots=True)
class TranscriptStyle:
    """How a transcript is written, in languages with spaces between words."""

    numerals: bool = False  # numbers in digits
    profanity_filter: bool = False  # profanity as in `s***`
    punctuate: bool = True  # as the recogniser does, with capitals; False: neither


@dataclass(frozen=True, slots=True)
class RecognitionOptions:
    """What a caller asks of a recognition, live or of a recording. A new field needs a default, and
    a field keeps its name, because waiting jobs were stored with the earlier fields. An option that
    cannot be honoured has no effect."""

    language: str | None = None  # code; None detects it
    languages: tuple[str, ...] = ()  # codes that detection chooses among; empty: any
    profile: ProfileName = "general"  # profile of recordings, from `configs/transcription.yaml`
    words: bool = False  # deliver times and confidence; live texts come sooner without them
    translate: bool = False  # to English; needs the engine's capability
    speakers: bool = False  # label them; `known_speakers` implies it
    known_speakers: SpeakerChoice = False  # labelled with their names
    multichannel: bool = False  # the first two channels of a recording are two speakers
    allows_mono: bool = False  # `multichannel` has no effect on a recording with one channel
    prompt: str = ""  # names and terms to expect, or the text before; only its end is used
    keyterms: tuple[str, ...] = ()  # names and rare words, as they are to be written
    no_speech_threshold: float = 0.6  # probability of silence that drops an unlikely text, 0 to 1
    form: TranscriptStyle = TranscriptStyle()
    redaction: Redaction | None = None  # personal data to mask; None: none

    @property
    def labels_speakers(self) -> bool:
        return self.speakers or bool(self.known_speakers)

    @property
    def needs_words(self) -> bool:
        """Whether the engine has to return the times of words, by which speakers are identified."""
        return self.words or self.labels_speakers or self.multichannel


DEFAULTS = RecognitionOptions()
