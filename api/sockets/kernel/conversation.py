"""What the session kernel and the protocols share: the interface of a conversation, messages."""

import json
import time
from collections.abc import Collection
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from api.http.bodies import parse_json
from api.http.errors import ApiError, first_fault
from pipelines.tts.session import Frame

Service = Literal["tts", "stt", "agent", "wyoming"]
M = TypeVar("M", bound=BaseModel)


class ClientFault(Exception):
    """The client sent a wrong message. It gets an error event, and the session continues.

    `event`, as JSON or bytes, replaces the one that `Conversation.error` makes of the message.
    """

    def __init__(self, message: str, event: Frame | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.event = event


class SessionEnded(Exception):
    """Messages can no longer be sent: the client is gone, or the session was closed."""


class Conversation(Protocol):
    """One protocol on one socket. The session calls these one after another, never two at once.

    While a `receive_` method runs, nothing is read, not even a pong or a disconnect: it may wait
    some seconds (backpressure), never for long. Longer work goes to `SocketSession.spawn`.
    """

    async def opened(self) -> None:
        """After the hello messages, before anything is received. By default nothing is sent: the
        first message is the client's."""
        return

    async def receive_text(self, text: str) -> None:
        """Raises ClientFault."""
        ...

    async def receive_binary(self, data: bytes) -> None:
        """Raises ClientFault."""
        raise ClientFault("binary messages have no meaning here; send JSON as text")

    async def closed(self) -> None:
        """Exactly once, however the session ended, after its tasks were cancelled."""
        return

    def error(self, message: str) -> Frame:
        """The protocol's error event."""
        ...


def now_s() -> float:
    """The timestamp of events: Unix time in seconds."""
    return round(time.time(), 3)


def json_text(value: Any) -> str:
    """A message of a socket, or a part of it, as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


SPOKEN = ("text", "transcript")
"""Fields of texts to speak, which may be cut anywhere: `SpeakingContext` joins them."""


def parse_event(text: str | bytes, *, pieces: Collection[str] = ()) -> dict[str, Any]:
    """The JSON object of a message, parsed as strictly as a body. Raises ClientFault."""
    try:
        value = parse_json(text if isinstance(text, bytes) else text.encode(), pieces=pieces)
    except ApiError as error:
        raise ClientFault(error.message.replace("the body", "the message", 1)) from None
    if not isinstance(value, dict):
        raise ClientFault("the message must be a JSON object")
    return value


def parse_spoken(text: str) -> dict[str, Any]:
    """The same for a message with a text to speak, which may end within a character."""
    return parse_event(text, pieces=SPOKEN)


def checked(shape: type[M], value: Any, name: str = "") -> M:
    """The value as `shape` has it. Raises ClientFault, which names the field at fault and its
    limit; `name` is the object of the fields."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise ClientFault(fault_message(error, name)) from None


def fault_message(error: ValidationError, name: str = "") -> str:
    """Names the first field at fault and its limit; `name` is the object of the fields."""
    field, text = first_fault(error)
    place = ".".join(filter(None, (name, field)))
    return f"{place}: {text}" if place else text
