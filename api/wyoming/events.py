"""The events of the Wyoming protocol (https://github.com/OHF-Voice/wyoming): a line of JSON,
followed by more JSON and by bytes, both as long as the line says. The package `wyoming` bounds no
length.

Clients' events that have no meaning here are ignored, as the protocol wants it.
"""

import asyncio
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.sockets.kernel.conversation import (
    ClientFault,
    checked,
    fault_message,
    json_text,
    parse_event,
)
from models.stt.options import KeyTerms

HEADER_BYTES = 1 << 16  # as the package reads, by the default of asyncio
DATA_BYTES = PAYLOAD_BYTES = 1 << 20  # as the messages of all sockets
STREAMING = (1, 7)  # the version of the package that brought streamed answers
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\b")


class EventHeader(BaseModel):
    """The first line of an event, as far as it says where the event ends."""

    model_config = ConfigDict(strict=True)

    data_length: Annotated[int, Field(ge=0, le=DATA_BYTES)] | None = None
    payload_length: Annotated[int, Field(ge=0, le=PAYLOAD_BYTES)] | None = None


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The bytes of the next event; none at the end of the stream, also amid an event.

    The limit of `reader` is HEADER_BYTES. Raises ClientFault: what follows cannot be read.
    """
    try:
        line = await reader.readuntil(b"\n")
        header = EventHeader.model_validate_json(line)
        length = (header.data_length or 0) + (header.payload_length or 0)
        return line + await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError:
        raise ClientFault(f"header: the line has more than {HEADER_BYTES} bytes") from None
    except ValidationError as error:
        raise ClientFault(fault_message(error, "header")) from None


def parse_frame(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """The fields of an event with its `type`, whether the client knows streamed answers as
    `streams`, and the payload. Raises ClientFault."""
    line, _, rest = frame.partition(b"\n")
    header = parse_event(line)
    length, data = header.get("data_length") or 0, header.get("data") or {}
    if not isinstance(data, dict) or not isinstance(header.get("type"), str):
        raise ClientFault("header: needs a type, and data only as an object")
    more = parse_event(rest[:length]) if length else {}
    version = _VERSION.match(str(header.get("version")))
    streams = version is not None and (int(version[1]), int(version[2])) >= STREAMING
    return {**data, **more, "type": header["type"], "streams": streams}, rest[length:]


def wyoming_event(kind: str, payload: bytes = b"", /, **data: Any) -> bytes:
    body = json_text(data).encode() if data else b""
    lengths = {"data_length": len(body), "payload_length": len(payload)}
    header = {"type": kind, **{name: length for name, length in lengths.items() if length}}
    return b"".join((json_text(header).encode(), b"\n", body, payload))


def wyoming_error(message: str, code: str | None = None) -> bytes:
    """The event of a failure; `code` is one of the service's codes of errors."""
    return wyoming_event("error", text=message, code=code)


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
    return checked(WyomingEvent, fields)
