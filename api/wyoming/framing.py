"""The framing of the Wyoming protocol (https://github.com/OHF-Voice/wyoming): an event is a line of
JSON, followed by more JSON and by bytes, both of the lengths that the line names.

The package `wyoming` bounds no length, so these are read here.
"""

import asyncio
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.sockets.kernel.conversation import ClientFault, fault_message, json_text, parse_event

HEADER_BYTES = 1 << 16  # as the reference reads, by the default of asyncio
DATA_BYTES = PAYLOAD_BYTES = 1 << 20  # as the messages of all sockets
STREAMING = (1, 7)  # the version of the protocol's package that brought the streamed answers

EventFields: TypeAlias = dict[str, Any]
"""The fields of an event, and its `type`."""


class EventHeader(BaseModel):
    """The first line of an event, as far as it is needed to find the end of the event."""

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
        raise ClientFault(f"the header line has more than {HEADER_BYTES} bytes") from None
    except ValidationError as error:
        raise ClientFault(fault_message(error, "header")) from None


def parse_frame(frame: bytes) -> tuple[EventFields, bytes]:
    """The fields of an event, those of its header overridden by the others, and its payload.

    Raises ClientFault.
    """
    line, _, rest = frame.partition(b"\n")
    header = parse_event(line)
    length = header.get("data_length") or 0
    data = header.get("data") or {}
    if not isinstance(data, dict) or not isinstance(header.get("type"), str):
        raise ClientFault("header: needs a type, and data only as an object")
    more = parse_event(rest[:length]) if length else {}
    fields = {**data, **more, "type": header["type"], "streams": _streams(header.get("version"))}
    return fields, rest[length:]


def _streams(version: Any) -> bool:
    """Whether the client's package knows streamed answers; others may wait for a whole one only."""
    parts = version.split(".")[:2] if isinstance(version, str) else []
    numbers = tuple(int(part) for part in parts if part.isascii() and part.isdecimal())
    return len(numbers) == 2 and numbers >= STREAMING


def wyoming_event(kind: str, payload: bytes = b"", **data: Any) -> bytes:
    """The bytes of an event."""
    body = json_text(data).encode() if data else b""
    header: EventFields = {"type": kind}
    if body:
        header["data_length"] = len(body)
    if payload:
        header["payload_length"] = len(payload)
    return b"".join((json_text(header).encode(), b"\n", body, payload))


def wyoming_error(message: str, code: str | None = None) -> bytes:
    """The event of a failure; `code` is one of the service's codes of errors."""
    return wyoming_event("error", text=message, code=code)
