"""A socket that listens, in any dialect: its listeners, from the first audio to the last event."""

from abc import abstractmethod
from collections.abc import Sequence

from api.dialects.listener import SocketListener
from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import Conversation
from api.sockets.kernel.session import SocketSession
from models.base import ModelInfo
from pipelines.errors import InsufficientCredit
from telemetry.tracing import request_id


class ListeningConversation(Conversation):
    """A dialect's subclass reads its messages, and its listeners write the events."""

    silence: tuple[float, str, int]
    """Seconds without any message that end the session, the error, and the close code."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        self.socket = socket
        self.speech = services.speech
        self.request_id = request_id.get() or ""
        self.model: ModelInfo  # the recogniser
        self.listeners: Sequence[SocketListener] = ()  # one for each channel
        self._close_code = close_codes.NORMAL
        self._ended = 0
        self._is_closing = False

    @abstractmethod
    async def begin(self) -> None:
        """Starts the listeners. Raises ApiError, InvalidRequest or EngineError."""

    @abstractmethod
    async def handle(self, text: str) -> bool:
        """Whether the message ends the stream. Raises ClientFault."""

    @abstractmethod
    async def accept(self, data: bytes) -> bool:
        """Takes audio; whether it ends the stream. Raises InsufficientCredit or ClientFault."""

    async def summarise(self) -> None:
        """Sends the last event."""

    async def opened(self) -> None:
        self._expect_message()
        try:
            self.model = await self.speech.live_transcription.transcriber.describe()
            await self.begin()
        except CODED as error:
            shown = to_api_error(error)
            code = close_codes.POLICY if shown.status < 500 else close_codes.INTERNAL
            self.socket.end(shown.message, code)

    async def receive_text(self, text: str) -> None:
        self._expect_message()
        if not self._is_closing and await self.handle(text):
            self._finish()

    async def receive_binary(self, data: bytes) -> None:
        self._expect_message()
        try:
            if not self._is_closing and await self.accept(data):
                self._finish()
        except InsufficientCredit as error:
            await self.socket.send(self.error(str(error)))
            self._close_code = close_codes.CREDIT_SPENT
            self._finish(whole=False)

    async def listener_ended(self) -> None:
        """Each listener tells its end; that of the last closes the socket."""
        self._ended += 1
        if self._ended == len(self.listeners):
            await self.summarise()
            self.socket.finish(self._close_code)

    async def closed(self) -> None:
        for one in self.listeners:
            await one.close()

    def _finish(self, *, whole: bool = True) -> None:
        """After the events of what was sent, with the resampler's rest only when `whole`."""
        self._is_closing = True
        self.socket.timeouts.clear("audio")
        for one in self.listeners:
            one.input.finish(whole=whole)

    def _expect_message(self) -> None:
        if not self._is_closing:
            self.socket.timeouts.set("audio", *self.silence)
