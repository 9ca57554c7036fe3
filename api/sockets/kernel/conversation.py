"""The interface between the session kernel and a protocol: one conversation a socket."""

from typing import Literal, Protocol

from pydantic import BaseModel

Service = Literal["tts", "stt"]


class ClientFault(Exception):
    """The client sent a wrong message. It gets an error event, and the session goes on.

    `event` replaces the one that `Conversation.error` makes of the message.
    """

    def __init__(self, message: str, event: BaseModel | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.event = event


class SessionEnded(Exception):
    """Messages can no longer be sent: the client is gone, or the session was closed."""


class Conversation(Protocol):
    """One protocol on one socket. The session calls these one after another, never two at once.

    While one of the `receive_` methods runs, nothing is read, not even a pong or that the client
    left: they may wait for seconds to push back, never for long. Work goes to
    `SocketSession.spawn`.
    """

    service: Service

    async def opened(self) -> None:
        """After the hello messages, before anything is received."""
        ...

    async def receive_text(self, text: str) -> None:
        """Raises ClientFault."""
        ...

    async def receive_binary(self, data: bytes) -> None:
        """Raises ClientFault."""
        ...

    async def closed(self) -> None:
        """Exactly once, however the session ended, after its tasks were cancelled."""
        ...

    def error(self, message: str) -> BaseModel:
        """The protocol's error event."""
        ...
