"""Interface of speech-to-text engines: requests, transcripts and capabilities."""

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

LEAST_PROBABILITY = 1e-4  # smaller probabilities of languages are noise

# Urgency of a request; the smallest is scheduled first, and waiting raises the priority.
FINAL = 0  # a client waits for this text
SPECULATIVE = 1  # becomes a final if the utterance has ended
INTERIM = 2  # useful only at once, so it is decoded a single time
FILE = 3  # a later part of a recording


def _always() -> bool:
    return True


@dataclass(slots=True, eq=False)
class DecodingBudget:
    """Decoding budget of a request: tokens that all of its attempts and parts may still take."""

    tokens: float = math.inf
    reserve: float = 0.0  # tokens added once, to decode few of the repetitions
    is_wanted: Callable[[], bool] = _always  # False once the caller left; thread-safe


UNLIMITED = DecodingBudget()


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """One stretch of speech, at most 30 s. Sent between processes."""

    pcm: Pcm  # float32 [n] at STT_SAMPLE_RATE
    language: str | None = None  # ISO 639-1 code; None detects
    languages: tuple[str, ...] = ()  # when not empty, detection chooses among these
    prior: Mapping[str, float] = field(default_factory=dict)  # odds; 1 for any other language
    # The caller's options, with the prompt of this stretch; `words` is set if times are needed.
    options: RecognitionOptions = RecognitionOptions()
    beam_size: int = 1  # width of the beam in the decoding profile
    urgency: int = FINAL
    owner: str = ""  # the tenant: replicas share their time fairly between tenants
    is_live: bool = False  # part of a session; requests of files leave a slot to other tenants
    # Speech (start, end), in samples: stretches without a word are decoded again. Empty: unchecked.
    speech: tuple[tuple[int, int], ...] = ()
    # Seconds from the start of decoding in which a doubtful text is decoded again; None: always.
    retry_within_s: float | None = None
    # Windows (start, end), in samples, for which the replica adds speaker embeddings.
    voice_windows: tuple[tuple[int, int], ...] = ()
    budget: DecodingBudget = field(default=UNLIMITED, compare=False)

    @property
    def seconds(self) -> float:
        return len(self.pcm) / STT_SAMPLE_RATE

    @property
    def expected(self) -> str | None:
        """Likeliest language by the prior alone."""
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
    avg_logprob: float = 0.0
    no_speech_prob: float = 0.0
    words: tuple[Word, ...] = ()

    def shifted(self, seconds: float) -> "Segment":
        """Copies the segment with `seconds` added to its times, which begin at zero."""
        start, end = max(0.0, self.start + seconds), max(0.0, self.end + seconds)
        return replace(self, start=start, end=end, words=shifted(self.words, seconds))


def shifted(words: Sequence[Word], seconds: float) -> tuple[Word, ...]:
    """Copies words with `seconds` added to their times, which begin at zero."""
    return tuple(
        replace(
            word,
            start=round(max(0.0, word.start + seconds), 2),
            end=round(max(0.0, word.end + seconds), 2),
        )
        for word in words
    )


@dataclass(frozen=True, slots=True)
class Transcript:
    """Result of a request; empty `segments` mean that there is no speech."""

    language: str  # ISO 639-1 code, given or detected
    language_probability: float  # 0 to 1
    segments: tuple[Segment, ...] = ()
    voices: Embeddings | None = None  # speaker embeddings of the windows, if there is speech
    # Possible languages of the text where the engine does not tell; the text then decides.
    candidates: tuple[str, ...] = ()
    # Probabilities of languages by this speech alone; empty where the language was given.
    scores: Mapping[str, float] = field(default_factory=dict)


def add_voices(
    request: TranscriptionRequest, transcript: Transcript, encoder: SpeakerEncoder
) -> Transcript:
    """Adds the speaker embeddings of the requested windows, if there is speech; blocking. The
    replica that transcribes computes them, so that the audio is sent and queued once."""
    if not transcript.segments:
        return transcript
    return replace(transcript, voices=encoder.embed_pieces(request.pcm, request.voice_windows))


@dataclass(frozen=True, slots=True, kw_only=True)
class STTCapabilities:
    """The capabilities of a speech-to-text engine."""

    languages: tuple[str, ...]  # ISO 639-1 codes
    max_concurrency: int = 1  # calls that run in parallel; more would only wait
    max_batch_size: int = 1  # requests per call
    translates: bool = False  # translates to English
    word_times: bool = True  # word times are measured; else estimated by numbers of letters
    character_errors: tuple[tuple[str, float], ...] = ()  # percent by language, where measured
    device: str = "cpu"

    def check(self, request: TranscriptionRequest) -> None:
        """Raises UnsupportedLanguage, or InvalidEngineRequest (too much audio, no translation)."""
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
    """Speech recogniser. All state of a request is local to the call."""

    capabilities: STTCapabilities

    @abstractmethod
    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        """Decodes a batch of requests, in order; blocking. Raises as `STTCapabilities.check`."""
