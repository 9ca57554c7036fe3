"""Messages of the client on a dialect's socket: JSON objects whose `type` names them."""

from typing import Self

from pydantic import ValidationError

from api.sockets.kernel.conversation import ClientFault, fault_message, parse_event
from api.sockets.tts.events import LenientModel


class SocketMessage(LenientModel):
    """A subclass has the names, and all fields that a message of one of them may have."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ClientFault."""
        try:
            return cls.model_validate(parse_event(text))
        except ValidationError as error:
            raise ClientFault(fault_message(error)) from None
