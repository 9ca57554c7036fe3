"""Messages of the client on a dialect's socket: JSON objects, of which most name their `type`."""

from typing import Any, Self

from pydantic import ValidationError

from api.http.errors import to_api_error
from api.sockets.kernel.conversation import ClientFault, fault_message, parse_event
from api.sockets.tts.events import LenientModel


class SocketMessage(LenientModel):
    """A subclass has the names, and all fields that a message of one of them may have."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ClientFault."""
        return cls.of(parse_event(text))

    @classmethod
    def of(cls, event: dict[str, Any]) -> Self:
        """Raises ClientFault."""
        try:
            return cls.model_validate(event)
        except ValidationError as error:
            raise ClientFault(fault_message(error)) from None


def fault_text(error: Exception) -> str:
    """Of fields that are wrong, or of an error of any layer."""
    if isinstance(error, ValidationError):
        return fault_message(error)
    return to_api_error(error).message
