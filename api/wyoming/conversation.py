"""The Wyoming protocol over one connection: each event is a binary message of the session."""

import asyncio

from api.http.errors import CODED, to_api_error
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.audio_input import PUSH_BACK_S
from api.sockets.kernel.conversation import ClientFault, Conversation
from api.sockets.kernel.session import SocketSession
from api.wyoming.asr import SpokenCommand, open_command
from api.wyoming.events import (
    AudioSamples,
    AudioStop,
    Describe,
    Ping,
    Said,
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    Transcribe,
    parse_wyoming_event,
)
from api.wyoming.framing import EventFields, parse_frame, wyoming_error, wyoming_event
from api.wyoming.handle import Memory, answer
from api.wyoming.info import info_event
from api.wyoming.tts import SpokenTexts
from pipelines.errors import InsufficientCredit


class WyomingConversation(Conversation):
    """Audio to transcribe, texts to speak and sentences to answer, in any order."""

    def __init__(self, session: SocketSession, services: Services, memory: Memory) -> None:
        self._session = session
        self._services = services
        self._memory = memory
        self._asked: Transcribe | None = None  # of the audio that comes next
        self._command: SpokenCommand | None = None
        self._texts = SpokenTexts(session, services.speech)
        self._answering: asyncio.Task[None] | None = None

    async def receive_binary(self, data: bytes) -> None:
        try:
            await self._handle(*parse_frame(data))
        except CODED as error:
            shown = to_api_error(error)
            raise ClientFault(shown.message, wyoming_error(shown.message, shown.code)) from None

    async def _handle(self, fields: EventFields, payload: bytes) -> None:
        match parse_wyoming_event(fields):
            case Describe():
                workspace_id = self._session.principal.workspace_id
                await self._session.send(await info_event(self._services, workspace_id))
            case Ping(text=text):
                await self._session.send(wyoming_event("pong", text=text))
            case Transcribe() as asked:
                self._asked = asked
            case AudioSamples() as samples:
                await self._listen(samples, payload)
            case AudioStop():
                if self._command is None or self._command.is_whole:
                    raise ClientFault("audio-stop: send audio first")
                self._command.finish()
            case Synthesize() as asked:
                await self._texts.speak(asked)
            case SynthesizeStart() as asked:
                self._texts.begin(asked)
            case SynthesizeChunk(text=text):
                await self._texts.add(text)
            case SynthesizeStop():
                await self._texts.end()
            case Said() as said:
                self._answer(said)

    async def closed(self) -> None:
        if self._command is not None:
            await self._command.close()

    def error(self, message: str) -> bytes:
        return wyoming_error(message)

    async def _listen(self, samples: AudioSamples, payload: bytes) -> None:
        """Ends the session when the audio cannot be transcribed: some clients ignore errors, and
        would wait for the transcript."""
        try:
            if self._command is None or self._command.is_whole:
                asked = self._asked or Transcribe(streams=samples.streams)
                async with asyncio.timeout(PUSH_BACK_S):  # transcripts come one after another
                    while self._command is not None and not self._command.ended.done():
                        await asyncio.wait([self._command.ended])
                self._asked = None
                self._command = await open_command(self._session, self._services.speech, asked)
            if samples.type == "audio-chunk":
                await self._command.accept(samples, payload)
        except TimeoutError:
            message = "the transcript of the audio before is not ready"
            self._session.end(message, close_codes.OVERLOADED)
        except CODED as error:
            spent = isinstance(error, InsufficientCredit)
            shown = to_api_error(error)
            await self._session.send(wyoming_error(shown.message, shown.code))
            self._session.finish(close_codes.CREDIT_SPENT if spent else close_codes.POLICY)

    def _answer(self, said: Said) -> None:
        if self._answering is not None and not self._answering.done():
            raise ClientFault("transcript: the answer to the one before is not given yet")
        work = answer(self._session, self._services, self._memory, said)
        self._answering = self._session.spawn(work, "answer")
