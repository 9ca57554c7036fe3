"""Events of the Wyoming protocol (https://github.com/OHF-Voice/wyoming): a line of JSON, then more
JSON and bytes, whose lengths are in the line. The package `wyoming` does not limit these lengths,
so it is not used. Unknown events are ignored, as the protocol demands."""

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

HEADER_BYTES = 1 << 16  # default of asyncio, which the package `wyoming` uses
DATA_BYTES = PAYLOAD_BYTES = 1 << 20  # as in the messages of all sockets
STREAMING = (1, 7)  # version of the package `wyoming` that introduced streamed answers
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\b")


class EventHeader(BaseModel):
    """The fields of an event's first line that determine its length."""

    model_config = ConfigDict(strict=True)

    data_length: Annotated[int, Field(ge=0, le=DATA_BYTES)] | None = None
    payload_length: Annotated[int, Field(ge=0, le=PAYLOAD_BYTES)] | None = None


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Reads the bytes of the next event; b"" if the stream ends, even in the middle of an event.
    The limit of `reader` is HEADER_BYTES. After a ClientFault the stream can no longer be read."""
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
    """Returns the fields and the payload of an event. Raises ClientFault. The fields include
    `type`, and `streams`: whether the client supports streamed answers."""
    line, _, rest = frame.partition(b"\n")
    header = parse_event(line)
    length = header.get("data_length") or 0
    data = header.get("data") or {}
    if not isinstance(data, dict) or not isinstance(header.get("type"), str):
        raise ClientFault("header: needs a type, and data must be an object")
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
    """Encodes an error; `code` is an error code of the service."""
    return wyoming_event("error", text=message, code=code)


Name = Annotated[str, Field(max_length=200)]

FORMAT = "rate", "width", "channels"
REQUIRED_FIELDS: dict[str, tuple[str, ...]] = {
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
"""The required fields of each type of event."""
UNSUPPORTED = frozenset({"detect", "recognize", "intent"})
"""Requests for other services. They get an error, since their clients wait for an answer."""


class VoiceChoice(BaseModel):
    """A voice by its name or id, or a language whose default voice speaks."""

    model_config = ConfigDict(strict=True, frozen=True)

    name: Name | None = None
    language: Name | None = None


class WyomingContext(BaseModel):
    """The conversation to which a sentence belongs."""

    conversation_id: Name | None = None


class WyomingEvent(BaseModel):
    """The fields of all types of events. Strings are not accepted as numbers."""

    model_config = ConfigDict(strict=True, frozen=True)

    type: str
    streams: bool  # whether the client supports streamed answers
    text: str = ""
    name: Name | None = None  # name of a recogniser
    language: Name | None = None  # None: detected
    transcript_names: KeyTerms | None = None
    transcript_terms: KeyTerms | None = None
    rate: int = Field(default=16_000, ge=1000, le=384_000)  # Hz
    width: int = Field(default=2, ge=1, le=4)  # bytes per sample: little-endian signed integers
    channels: int = Field(default=1, ge=1, le=8)
    voice: VoiceChoice | None = None
    text_format: Literal["text", "ssml"] | None = None  # None: SSML if the text is an SSML document
    context: WyomingContext | None = None


def parse_wyoming_event(fields: dict[str, Any]) -> WyomingEvent | None:
    """Validates an event; returns None for events that are ignored. Raises ClientFault."""
    kind = fields["type"]
    if kind in UNSUPPORTED:
        raise ClientFault(f"{kind}: not supported; send describe to list the supported services")
    if kind not in REQUIRED_FIELDS:
        return None
    if missing := [name for name in REQUIRED_FIELDS[kind] if name not in fields]:
        raise ClientFault(f"{missing[0]}: required by {kind}")
    return checked(WyomingEvent, fields)
