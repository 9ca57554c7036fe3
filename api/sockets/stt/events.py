"""The messages of /ws/stt, from the client and to it."""

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from api.sockets.kernel.conversation import parse_tagged
from pipelines.audio.decode.stream import LiveSampleRate

MIN_MS = 300  # of utterance_end_ms and interim_results_frequency; less is raised
MAX_MS = 30_000  # no utterance is longer
MAX_LANGUAGES = 100
CLIENT_TYPES = ("start", "audio", "config", "stop", "test")


class STTClientMessage(BaseModel):
    """Strict: a string is not a number. What is unknown is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


SocketEncoding = Literal["mulaw", "linear"]
Milliseconds = Annotated[int, AfterValidator(lambda value: min(max(value, MIN_MS), MAX_MS))]
Languages = Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=MAX_LANGUAGES)]


class StartConfig(STTClientMessage):
    """`encoding` and `sample_rate` only announce: each audio message names its own."""

    encoding: SocketEncoding = "mulaw"
    sample_rate: LiveSampleRate = 8000
    utterance_end_ms: Milliseconds = 500
    continuous_mode: bool = False
    interim_results_frequency: Milliseconds | None = None
    no_speech_threshold: float = Field(default=0.6, ge=0, le=1)


class Start(STTClientMessage):
    """Begins the session; once, before audio."""

    type: Literal["start"]
    languages: Languages | None = None
    config: StartConfig | None = None


class Audio(STTClientMessage):
    """A piece of audio in base64."""

    type: Literal["audio"]
    audio: str
    encoding: SocketEncoding
    sample_rate: LiveSampleRate
    timestamp: int | float | None = None  # Unix milliseconds; not used


class Config(STTClientMessage):
    """Changes the fields that are given."""

    type: Literal["config"]
    languages: Languages | None = None
    continuous_mode: bool = False


class Stop(STTClientMessage):
    """Ends the session after processing earlier messages."""

    type: Literal["stop"]


class Test(STTClientMessage):
    """Asks for an echo."""

    type: Literal["test"]
    message: str = Field(default="", max_length=10_000)
    timestamp: int | float | Annotated[str, Field(max_length=100)] | None = None


ClientEvent: TypeAlias = Start | Audio | Config | Stop | Test
_EVENT: TypeAdapter[ClientEvent] = TypeAdapter(Annotated[ClientEvent, Field(discriminator="type")])


def parse_client_event(text: str) -> ClientEvent:
    """Raises ClientFault."""
    return parse_tagged(text, "type", CLIENT_TYPES, _EVENT)


class Features(BaseModel):
    """The features of this session."""

    voice_activity_detection: bool = True
    interim_results: bool = True
    word_timestamps: bool = True
    language_detection: bool
    language_restriction: bool
    continuous_mode: bool = True
    telephony: bool = True
    speaker_labels: bool = False


class ServerInfo(BaseModel):
    server_type: str
    device: str
    model: str
    processing_mode: str
    supported_languages: dict[str, str]  # code to English name
    total_languages: int
    features: Features


class Connected(BaseModel):
    """The answer to `start`."""

    type: Literal["connected"] = "connected"
    server_info: ServerInfo


class SpeechStartedEvent(BaseModel):
    type: Literal["speech_started"] = "speech_started"
    timestamp: float  # seconds of audio since the session's first


class LiveWord(BaseModel):
    word: str
    start: float  # seconds of audio since the session's first
    end: float
    probability: float


class Transcription(BaseModel):
    """A final, an empty final, or an interim."""

    type: Literal["transcription"] = "transcription"
    text: str
    confidence: float
    language: str
    language_name: str
    is_final: bool
    speech_final: bool
    is_partial: bool
    sentence_id: int
    processing_mode: str
    duration: float  # s
    latency: float  # s
    timestamp: float  # where the utterance begins, seconds of audio since the session's first
    words: list[LiveWord]
    utterance_end_ms: int


class LanguageChanged(BaseModel):
    type: Literal["language_changed"] = "language_changed"
    language: str
    language_code: list[str]


class ModeChanged(BaseModel):
    type: Literal["mode_changed"] = "mode_changed"
    continuous_mode: bool
    mode_name: Literal["continuous", "single"]
    silence_threshold: float  # s


class BillingSummary(BaseModel):
    total_duration_seconds: float
    total_cost: float  # USD
    characters_transcribed: int


class SessionStopped(BaseModel):
    type: Literal["session_stopped"] = "session_stopped"
    billing_summary: BillingSummary


class SttError(BaseModel):
    type: Literal["error"] = "error"
    error: str
    timestamp: float  # Unix seconds


class TestResponse(BaseModel):
    type: Literal["test_response"] = "test_response"
    message: str
    timestamp: int | float | str | None  # the client's own
    processing_mode: str
