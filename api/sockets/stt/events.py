"""The messages of /ws/stt, from the client and to it."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from api.http.bodies import KeyTerms, KnownSpeakers, RedactFields
from api.sockets.kernel.conversation import ClientFault, fault_message, json_text, parse_event
from pipelines.audio.decode.stream import LiveSampleRate

MIN_MS = 300  # of utterance_end_ms and interim_results_frequency; less is raised
MAX_MS = 30_000  # no utterance is longer
MAX_LANGUAGES = 100
ServerMessage = Literal[
    "connected",
    "speech_started",
    "transcription",
    "language_changed",
    "mode_changed",
    "session_stopped",
    "error",
    "test_response",
]


class STTClientMessage(BaseModel):
    """Strict: a string is not a number. What is unknown is ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


SocketEncoding = Literal["mulaw", "linear"]
Milliseconds = Annotated[int, AfterValidator(lambda value: min(max(value, MIN_MS), MAX_MS))]
Languages = Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=MAX_LANGUAGES)]


class StartConfig(STTClientMessage, RedactFields):
    """`encoding` and `sample_rate` only announce: each audio message names its own."""

    encoding: SocketEncoding = "mulaw"
    sample_rate: LiveSampleRate = 8000
    utterance_end_ms: Milliseconds = 500
    continuous_mode: bool = False
    interim_results_frequency: Milliseconds | None = None
    no_speech_threshold: float = Field(default=0.6, ge=0, le=1)
    keyterms: KeyTerms = []
    profanity_filter: bool = False
    numerals: bool = False
    punctuate: bool = True
    speaker_labels: bool = False
    known_speakers: KnownSpeakers = False  # which implies speaker_labels


class Start(STTClientMessage):
    """Begins the session; once, before audio."""

    languages: Languages | None = None
    config: StartConfig | None = None


class Audio(STTClientMessage):
    """A piece of audio in base64."""

    audio: str
    encoding: SocketEncoding
    sample_rate: LiveSampleRate
    timestamp: int | float | None = None  # Unix milliseconds; not used


class Config(STTClientMessage):
    """Changes the fields that are given."""

    languages: Languages | None = None
    continuous_mode: bool = False


class Stop(STTClientMessage):
    """Ends the session after processing earlier messages."""


class Test(STTClientMessage):
    """Asks for an echo."""

    message: str = Field(default="", max_length=10_000)
    timestamp: int | float | Annotated[str, Field(max_length=100)] | None = None


ClientEvent: TypeAlias = Start | Audio | Config | Stop | Test
EVENTS: dict[str, type[ClientEvent]] = {
    "start": Start,
    "audio": Audio,
    "config": Config,
    "stop": Stop,
    "test": Test,
}


def parse_client_event(text: str) -> ClientEvent:
    """What the field `type` names. Raises ClientFault, which names the field at fault and its
    limit."""
    value = parse_event(text)
    event = EVENTS.get(str(value.get("type")))
    if event is None:
        raise ClientFault(f"type: must be one of {', '.join(EVENTS)}")
    try:
        return event.model_validate(value)
    except ValidationError as error:
        raise ClientFault(fault_message(error)) from None


def stt_event(kind: ServerMessage, **fields: Any) -> str:
    """A message of the server as JSON; docs/websockets.md has its fields."""
    return json_text({"type": kind, **fields})
