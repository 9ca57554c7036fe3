"""The interface between the session kernel and the protocols, and parsing of their messages."""

import json
import time
from collections.abc import Collection
from typing import Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from api.http.bodies import parse_json
from api.http.errors import ApiError, first_fault
from pipelines.tts.session import Frame

Service = Literal["tts", "stt", "agent", "call", "chat", "wyoming"]
M = TypeVar("M", bound=BaseModel)


class ClientFault(Exception):
    """The client sent an invalid message. It gets an error event, and the session continues.
    `event` (JSON or bytes) is sent instead of the event that `Conversation.error` makes."""

    def __init__(self, message: str, event: Frame | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.event = event


class SessionEnded(Exception):
    """Messages can no longer be sent: the client is gone, or the session was closed."""


class Conversation(Protocol):
    """One protocol on one socket, whose methods are called one at a time. While a `receive_` method
    runs, nothing is read, not even a disconnect: it may wait some seconds (backpressure), but
    longer work goes to `SocketSession.spawn`."""

    @property
    def is_busy(self) -> bool:
        """Whether the service, before it stops, should wait for work in progress."""
        return False

    async def opened(self) -> None:
        """Runs after the hello messages, before the client's first message."""
        return

    async def receive_text(self, text: str) -> None:
        """Handles a text message. Raises ClientFault."""
        ...

    async def receive_binary(self, data: bytes) -> None:
        """Handles a binary message; refuses it by default. Raises ClientFault."""
        raise ClientFault("binary messages have no meaning here; send JSON as text")

    def timed_out(self, message: str, code: int) -> bool:
        """Whether the conversation ends the session itself after this timeout, once its pending
        events are sent. Otherwise, the session ends at once."""
        return False

    async def closed(self) -> None:
        """Runs exactly once, however the session ended, after its tasks were cancelled."""
        return

    def error(self, message: str) -> Frame:
        """Returns the protocol's error event."""
        ...


def now_s() -> float:
    """Returns the timestamp of events: Unix time in seconds."""
    return round(time.time(), 3)


def json_text(value: Any) -> str:
    """Encodes a message, or a part of it, as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


SPOKEN = ("text", "transcript")
"""Fields of texts to speak. They may end within a character, since `SpeakingContext` joins them."""


def parse_event(text: str | bytes, *, pieces: Collection[str] = ()) -> dict[str, Any]:
    """Parses a message, which must be a JSON object, as strictly as a request body. Fields in
    `pieces` may end within a character. Raises ClientFault."""
    try:
        value = parse_json(text if isinstance(text, bytes) else text.encode(), pieces=pieces)
    except ApiError as error:
        raise ClientFault(error.message.replace("the body", "the message", 1)) from None
    if not isinstance(value, dict):
        raise ClientFault("the message must be a JSON object")
    return value


def parse_spoken(text: str) -> dict[str, Any]:
    """Parses a message whose text to speak may end within a character. Raises ClientFault."""
    return parse_event(text, pieces=SPOKEN)


def checked(shape: type[M], value: Any, name: str = "") -> M:
    """Validates a value; errors call it `name`. Raises ClientFault."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise ClientFault(fault_message(error, name)) from None


def fault_message(error: ValidationError, name: str = "") -> str:
    """Returns a message about the first field at fault, as a field of the object `name`."""
    field, text = first_fault(error)
    path = ".".join(filter(None, (name, field)))
    return f"{path}: {text}" if path else text
