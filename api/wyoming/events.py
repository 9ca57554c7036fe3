"""The events of a Wyoming client that the service acts on. Others are ignored, as the protocol
wants it, and so are fields that have no meaning here."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from api.http.bodies import KeyTerms
from api.sockets.kernel.conversation import ClientFault, check_tagged
from api.wyoming.framing import EventFields

Name = Annotated[str, Field(max_length=200)]


class WyomingEvent(BaseModel):
    """Strict: a string is not a number."""

    model_config = ConfigDict(strict=True, frozen=True)

    streams: bool = False  # whether the client knows streamed answers


class Describe(WyomingEvent):
    type: Literal["describe"]


class Ping(WyomingEvent):
    type: Literal["ping"]
    text: Annotated[str, Field(max_length=10_000)] | None = None


class Transcribe(WyomingEvent):
    """What is to be known of the audio that follows."""

    type: Literal["transcribe"] = "transcribe"
    name: Name | None = None  # of a recogniser
    language: Name | None = None  # None detects it
    transcript_names: KeyTerms | None = None
    transcript_terms: KeyTerms | None = None


class AudioSamples(WyomingEvent):
    """The format of the samples: integers, signed and little-endian."""

    type: Literal["audio-start", "audio-chunk"]
    rate: int = Field(ge=1000, le=384_000)  # Hz
    width: int = Field(ge=1, le=4)  # bytes
    channels: int = Field(ge=1, le=8)


class AudioStop(WyomingEvent):
    type: Literal["audio-stop"]


class VoiceChoice(BaseModel):
    """A voice by its name or id, or a language whose default voice speaks."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: Name | None = None
    language: Name | None = None


class SpeechOptions(WyomingEvent):
    voice: VoiceChoice | None = None
    text_format: Literal["text", "ssml"] | None = None  # None: as SSML where it is a document


class Synthesize(SpeechOptions):
    """A whole text. Within a stream it repeats the text of the stream, for older servers."""

    type: Literal["synthesize"]
    text: str


class SynthesizeStart(SpeechOptions):
    """The beginning of a text that is streamed."""

    type: Literal["synthesize-start"]


class SynthesizeChunk(WyomingEvent):
    type: Literal["synthesize-chunk"]
    text: str


class SynthesizeStop(WyomingEvent):
    type: Literal["synthesize-stop"]


class SaidContext(BaseModel):
    """The conversation that a sentence belongs to."""

    conversation_id: Name | None = None


class Said(WyomingEvent):
    """A sentence of the user, to which the chat model answers."""

    type: Literal["transcript"]
    text: str
    context: SaidContext | None = None


WyomingMessage: TypeAlias = (
    Describe
    | Ping
    | Transcribe
    | AudioSamples
    | AudioStop
    | Synthesize
    | SynthesizeStart
    | SynthesizeChunk
    | SynthesizeStop
    | Said
)
_MESSAGE: TypeAdapter[WyomingMessage] = TypeAdapter(
    Annotated[WyomingMessage, Field(discriminator="type")]
)
_KNOWN = frozenset(
    "describe ping transcribe audio-start audio-chunk audio-stop synthesize synthesize-start "
    "synthesize-chunk synthesize-stop transcript".split()
)
UNSERVED = frozenset({"detect", "recognize", "intent"})
"""Requests for services that there are not here, whose clients would wait for an answer."""


def parse_wyoming_event(fields: EventFields) -> WyomingMessage | None:
    """None for an event that has no meaning here. Raises ClientFault."""
    if fields["type"] in UNSERVED:
        raise ClientFault(f"{fields['type']}: not served here; describe lists what is")
    return check_tagged(fields, _MESSAGE) if fields["type"] in _KNOWN else None
