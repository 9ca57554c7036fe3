"""The events of clients that have a meaning here; others are ignored, as the protocol wants it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.http.bodies import KeyTerms
from api.sockets.kernel.conversation import ClientFault, fault_message

Name = Annotated[str, Field(max_length=200)]

FORMAT = "rate", "width", "channels"
NEEDED: dict[str, tuple[str, ...]] = {
    "describe": (),
    "ping": (),
    "transcribe": (),
    "audio-start": FORMAT,
    "audio-chunk": FORMAT,
    "audio-stop": (),
    "synthesize": ("text",),
    "synthesize-start": (),
    "synthesize-chunk": ("text",),
    "synthesize-stop": (),
    "transcript": ("text",),
}
"""The fields that an event of each type has to have."""
UNSERVED = frozenset({"detect", "recognize", "intent"})
"""Requests for services that there are not here, whose clients would wait for an answer."""


class VoiceChoice(BaseModel):
    """A voice by its name or id, or a language whose default voice speaks."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: Name | None = None
    language: Name | None = None


class SaidContext(BaseModel):
    """The conversation that a sentence belongs to."""

    conversation_id: Name | None = None


class WyomingEvent(BaseModel):
    """The fields of all events. Strict: a string is not a number."""

    model_config = ConfigDict(strict=True, frozen=True)

    type: str
    streams: bool  # whether the client knows streamed answers
    text: str = ""
    name: Name | None = None  # of a recogniser
    language: Name | None = None  # None detects it
    transcript_names: KeyTerms | None = None
    transcript_terms: KeyTerms | None = None
    rate: int = Field(default=16_000, ge=1000, le=384_000)  # Hz
    width: int = Field(default=2, ge=1, le=4)  # bytes of a sample: a signed integer, little-endian
    channels: int = Field(default=1, ge=1, le=8)
    voice: VoiceChoice | None = None
    text_format: Literal["text", "ssml"] | None = None  # None: as SSML where it is a document
    context: SaidContext | None = None


def parse_wyoming_event(fields: dict[str, Any]) -> WyomingEvent | None:
    """None for an event that has no meaning here. Raises ClientFault."""
    kind = fields["type"]
    if kind in UNSERVED:
        raise ClientFault(f"{kind}: not served here; describe lists what is")
    if kind not in NEEDED:
        return None
    if missing := [name for name in NEEDED[kind] if name not in fields]:
        raise ClientFault(f"{missing[0]}: needed by {kind}")
    try:
        return WyomingEvent.model_validate(fields)
    except ValidationError as error:
        raise ClientFault(fault_message(error)) from None
