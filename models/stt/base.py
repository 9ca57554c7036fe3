"""Speech to text."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.audio import Pcm
from models.base import Engine
from models.speaker.base import Embeddings, SpeakerEncoder

STT_SAMPLE_RATE = 16_000  # Hz; every engine listens at this rate

# Priorities of a request; the smallest goes first, and waiting raises it.
FINAL = 0  # a client waits for this text
SPECULATIVE = 1  # it becomes a final if no more is said
INTERIM = 2  # of use only when it comes at once, so one try must do
FILE = 3  # a later part of a recording


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How to decode; a profile of `configs/stt` fills it."""

    beam_size: int = 1
    initial_prompt: str | None = None  # terms to expect
    no_speech_threshold: float = 0.6  # 0 to 1
    log_prob_threshold: float = -1.0
    words: bool = False  # word timestamps


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """One stretch of speech, at most 30 s. Crosses processes."""

    pcm: Pcm  # float32 [n] at STT_SAMPLE_RATE
    language: str | None = None  # ISO 639-1 code; None detects
    languages: tuple[str, ...] = ()  # when not empty, detection chooses among these
    expected: str | None = None  # language of what was said before; tips a scale that is in doubt
    expected_times: int = 1  # utterances in a row that were in it; more tip it further
    options: DecodingOptions = DecodingOptions()
    urgency: int = FINAL
    retry_within_s: float | None = None  # so long a doubtful text is tried again; None: always
    # Samples from `start` up to `end` whose speaker embeddings the replica adds.
    voice_windows: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Word:
    word: str  # with no space around it
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


@dataclass(frozen=True, slots=True)
class Transcript:
    """Empty `segments` mean that nothing was said."""

    language: str  # the code that was used
    language_probability: float  # 0 to 1
    segments: tuple[Segment, ...] = ()
    voices: Embeddings | None = None  # of the windows asked for, when something was said


def add_voices(
    request: TranscriptionRequest, transcript: Transcript, encoder: SpeakerEncoder
) -> Transcript:
    """The transcript with the voices of the windows asked for; blocking.

    They are made where the speech is transcribed, so that it travels once and waits once. Where
    nothing was said, there are none.
    """
    if not transcript.segments:
        return transcript
    return replace(transcript, voices=encoder.embed_pieces(request.pcm, request.voice_windows))


@dataclass(frozen=True, slots=True, kw_only=True)
class STTCapabilities:
    """What a speech-to-text engine can do."""

    languages: tuple[str, ...]  # ISO 639-1 codes
    max_concurrency: int = 1  # calls that run side by side; more would only wait
    max_batch_size: int = 1  # requests of a call
    device: str = "cpu"


class STTEngine(Engine, ABC):
    """Turns speech into text. All state of a request lives in the call."""

    capabilities: STTCapabilities

    @abstractmethod
    def transcribe(self, requests: Sequence[TranscriptionRequest]) -> list[Transcript]:
        """Decodes a micro-batch of requests, in order; blocking.

        Raises UnsupportedLanguage.
        """
