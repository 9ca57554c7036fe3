"""The Wyoming protocol over one connection: each event is a binary message of the session."""

import asyncio

from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.audio_input import PUSH_BACK_S
from api.sockets.kernel.conversation import ClientFault, Conversation
from api.sockets.kernel.session import SocketSession
from api.wyoming.asr import SpokenCommand
from api.wyoming.events import (
    WyomingEvent,
    parse_frame,
    parse_wyoming_event,
    wyoming_error,
    wyoming_event,
)
from api.wyoming.handle import Memory, answer
from api.wyoming.info import info_event
from api.wyoming.tts import SpokenTexts
from pipelines.errors import InsufficientCredit, Overloaded


class WyomingConversation(Conversation):
    """Audio to transcribe, texts to speak and sentences to answer, in any order."""

    def __init__(self, session: SocketSession, services: Services, memory: Memory) -> None:
        self._session = session
        self._services = services
        self._memory = memory
        self._asked: WyomingEvent | None = None  # of the audio that comes next
        self._command: SpokenCommand | None = None
        self._texts = SpokenTexts(session, services.speech)
        self._answering: asyncio.Task[None] | None = None

    async def receive_text(self, text: str) -> None:
        raise ClientFault("events are binary messages")

    async def receive_binary(self, data: bytes) -> None:
        fields, payload = parse_frame(data)
        event = parse_wyoming_event(fields)
        try:
            if event is not None:
                await self._handle(event, payload)
        except CODED as error:
            shown = to_api_error(error)
            raise ClientFault(shown.message, wyoming_error(shown.message, shown.code)) from None

    async def closed(self) -> None:
        if self._command is not None:
            await self._command.close()

    def error(self, message: str) -> bytes:
        return wyoming_error(message)

    async def _handle(self, event: WyomingEvent, payload: bytes) -> None:
        match event.type:
            case "describe":
                workspace_id = self._session.principal.workspace_id
                await self._session.send(await info_event(self._services, workspace_id))
            case "ping":
                await self._session.send(wyoming_event("pong", text=event.text))
            case "transcribe":
                self._asked = event
            case "audio-start" | "audio-chunk":
                await self._listen(event, payload)
            case "audio-stop":
                if self._command is None or self._command.is_whole:
                    raise ClientFault("audio-stop: send audio first")
                self._command.finish()
            case "transcript":
                if self._answering is not None and not self._answering.done():
                    raise ClientFault("transcript: the answer before is not given yet")
                work = answer(self._session, self._services, self._memory, event)
                self._answering = self._session.spawn(work, "answer")
            case _:
                await self._texts.accept(event)

    async def _listen(self, samples: WyomingEvent, payload: bytes) -> None:
        """Ends the session when the audio cannot be transcribed: some clients ignore errors, and
        would wait for the transcript."""
        try:
            if self._command is None or self._command.is_whole:
                self._command = await self._open(self._asked or samples)
                self._asked = None
            await self._command.accept(samples, payload)
        except CODED as error:
            shown = to_api_error(error)
            await self._session.send(wyoming_error(shown.message, shown.code))
            spent = isinstance(error, InsufficientCredit)
            self._session.finish(close_codes.CREDIT_SPENT if spent else close_codes.POLICY)

    async def _open(self, asked: WyomingEvent) -> SpokenCommand:
        """A new command, after the transcript of the one before. Raises an error of CODED, as for
        an unknown recogniser or language."""
        if self._command is not None and self._command.listening is not None:
            _, late = await asyncio.wait([self._command.listening], timeout=PUSH_BACK_S)
            if late:
                raise Overloaded("the transcript of the audio before is not ready")
        speech = self._services.speech
        if asked.name:
            await speech.openai.check_transcriber(asked.name)
        command = SpokenCommand(self._session, speech, asked)
        await command.begin()
        return command
