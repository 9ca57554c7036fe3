"""Speech to text."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.audio import Pcm
from models.base import Engine
from models.errors import InvalidEngineRequest, UnsupportedLanguage
from models.speaker.base import Embeddings, SpeakerEncoder
from models.stt.options import RecognitionOptions

STT_SAMPLE_RATE = 16_000  # Hz; the input of every engine
MIN_SAMPLES = STT_SAMPLE_RATE // 50  # 20 ms; shorter audio has no speech
MAX_REQUEST_S = 30
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")  # languages without spaces between words

LEAST_PROBABILITY = 1e-4  # of a language; a recogniser's smaller ones are noise

# Priorities of a request; the smallest is scheduled first, and waiting raises it.
FINAL = 0  # a client waits for this text
SPECULATIVE = 1  # becomes a final if the utterance has ended
INTERIM = 2  # of use only at once, so it is decoded only one time
FILE = 3  # a later part of a recording


def _always() -> bool:
    return True


@dataclass(slots=True, eq=False)
class DecodingBudget:
    """The decoding budget of a request: tokens that all of its tries and parts may still take."""

    tokens: float = math.inf
    is_wanted: Callable[[], bool] = _always  # false when the caller left; asked from any thread


UNLIMITED = DecodingBudget()


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """One stretch of speech, at most 30 s. Sent between processes."""

    pcm: Pcm  # float32 [n] at STT_SAMPLE_RATE
    language: str | None = None  # ISO 639-1 code; None detects
    languages: tuple[str, ...] = ()  # when not empty, detection chooses among these
    # How many times likelier each language is than those not named, before it is heard.
    prior: Mapping[str, float] = field(default_factory=dict)
    # The caller's, with the prompt of this stretch, and `words` where anything needs their times.
    options: RecognitionOptions = RecognitionOptions()
    beam_size: int = 1  # of the decoding profile
    urgency: int = FINAL
    owner: str = ""  # the tenant: replicas share their time fairly between tenants
    is_live: bool = False  # of a session; the speech of files leaves a slot to other tenants
    # Stretches (start, end), in samples, where someone speaks: those without a word are decoded
    # again. Empty: not looked after.
    speech: tuple[tuple[int, int], ...] = ()
    retry_within_s: float | None = None  # until then a doubtful text is decoded again; None: always
    # Windows (start, end), in samples, of which the replica adds the speaker embeddings.
    voice_windows: tuple[tuple[int, int], ...] = ()
    budget: DecodingBudget = field(default=UNLIMITED, compare=False)

    @property
    def seconds(self) -> float:
        return len(self.pcm) / STT_SAMPLE_RATE

    @property
    def expected(self) -> str | None:
        """The likeliest language before the speech is heard."""
        return max(self.prior, key=lambda code: self.prior[code], default=None)

    @property
    def without_prompt(self) -> "TranscriptionRequest":
        return replace(self, options=replace(self.options, prompt=""))


@dataclass(frozen=True, slots=True)
class Word:
    word: str  # without surrounding spaces
    start: float  # seconds from the start of the request's pcm
    end: float
    confidence: float  # 0 to 1


@dataclass(frozen=True, slots=True)
class Segment:
    text: str
    start: float  # seconds
    end: float
    avg_logprob: float
    no_speech_prob: float
    words: tuple[Word, ...] = ()

    def shifted(self, seconds: float) -> "Segment":
        """The segment with `seconds` added to its times."""
        start, end = self.start + seconds, self.end + seconds
        return replace(self, start=start, end=end, words=shifted(self.words, seconds))


def shifted(words: Sequence[Word], seconds: float) -> tuple[Word, ...]:
    """The words with `seconds` added to their times."""
    return tuple(
        replace(one, start=round(one.start + seconds, 2), end=round(one.end + seconds, 2))
        for one in words
    )


@dataclass(frozen=True, slots=True)
class Transcript:
    """Empty `segments` mean that there is no speech."""

    language: str  # the code that was used
    language_probability: float  # 0 to 1
    segments: tuple[Segment, ...] = ()
    voices: Embeddings | None = None  # of the requested windows, if there is speech
    # The languages that the text may be in, where the engine does not tell: then the text does.
    candidates: tuple[str, ...] = ()
    # The probabilities of languages by this speech alone; empty where it was given.
    scores: Mapping[str, float] = field(default_factory=dict)


def add_voices(
    request: TranscriptionRequest, transcript: Transcript, encoder: SpeakerEncoder
) -> Transcript:
    """The transcript with the speaker embeddings of the requested windows; blocking.

    Computed by the replica that transcribes, so that the audio is sent and queued once. None are
    computed without speech.
    """
    if not transcript.segments:
        return transcript
    return replace(transcript, voices=encoder.embed_pieces(request.pcm, request.voice_windows))


@dataclass(frozen=True, slots=True, kw_only=True)
class STTCapabilities:
    """The capabilities of a speech-to-text engine."""

    languages: tuple[str, ...]  # ISO 639-1 codes
    max_concurrency: int = 1  # calls that run in parallel; more would only wait
    max_batch_size: int = 1  # requests per call
    translates: bool = False  # to English
    word_times: bool = True  # measured; else estimated by the numbers of letters
    character_errors: tuple[tuple[str, float], ...] = ()  # percent, of languages that were measured
    device: str = "cpu"

    def check(self, request: TranscriptionRequest) -> None:
        """Raises UnsupportedLanguage, or InvalidEngineRequest for a translation that the engine
        cannot make and for too much audio."""
        if request.options.translate and not self.translates:
            raise InvalidEngineRequest("model: this model does not translate, it transcribes")
        for language in (request.language, *request.languages):
            if language is not None and language not in self.languages:
                raise UnsupportedLanguage(f"this model does not know the language {language!r}")
        if len(request.pcm) > MAX_REQUEST_S * STT_SAMPLE_RATE:
            raise InvalidEngineRequest(f"a request is at most {MAX_REQUEST_S} s long")


def is_audible(pcm: Pcm) -> bool:
    return len(pcm) >= MIN_SAMPLES and bool(np.any(pcm))


class STTEngine(Engine, ABC):
    """Transcribes speech. All state of a request is local to the call."""

    capabilities: STTCapabilities

    @abstractmethod
    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        """Decodes a micro-batch of requests, in order; blocking.

        Raises UnsupportedLanguage or, if it cannot translate, InvalidEngineRequest.
        """
