"""Speech to text for Wyoming: a live session for each command, from its audio to its transcript."""

from api.http.errors import to_api_error
from api.services import SpeechServices
from api.sockets.kernel import close_codes
from api.sockets.kernel.audio_input import AudioInput
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.session import SocketSession
from api.wyoming.events import WyomingEvent
from api.wyoming.framing import wyoming_error, wyoming_event
from models.errors import EngineError
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.formatting import separator_of
from pipelines.stt.session import LiveSession

INTERIM_MS = 1000  # between the interims whose certain words are streamed


class SpokenCommand:
    """The audio of one command, and the transcript of all that is said in it."""

    def __init__(
        self,
        session: SocketSession,
        speech: SpeechServices,
        asked: WyomingEvent,
        languages: tuple[str, ...],
    ) -> None:
        """`languages` are codes of the engine."""
        listening = speech.live_transcription
        self.is_whole = False  # no audio follows
        self._session = session
        self._streams = asked.streams
        self._limits = listening.limits
        self._input = AudioInput(session, speech.billing, listening.limits)
        self._format: tuple[int, int, int] | None = None
        self._text = ""  # of the finals
        self._streamed = ""  # the beginning of the text
        self._next_id = 1  # of the sentence whose text comes next
        self._failure: EngineError | None = None
        options = SessionOptions(
            languages=languages,
            keyterms=(*(asked.transcript_names or ()), *(asked.transcript_terms or ())),
            interim_ms=INTERIM_MS if asked.streams else None,
            words=False,
            owner=str(session.principal.workspace_id),
        )
        self._live = LiveSession(listening, options, self._emit)
        self._emitting = session.spawn(self._live.run(), "emit transcripts")
        self.ended = session.spawn(self._listen(), "listen")

    async def accept(self, samples: WyomingEvent, payload: bytes) -> None:
        """Raises ClientFault, or InsufficientCredit: then the audio is dropped."""
        given = samples.rate, samples.width, samples.channels
        if self._format not in (None, given):
            raise ClientFault(f"{samples.type}: the format is not that of the audio before")
        self._format, seconds = given, self._limits.audio_timeout_s
        self._session.timeouts.set("audio", seconds, f"no audio came for {seconds:g} seconds")
        await self._input.accept(payload, "linear", *given)

    def finish(self) -> None:
        """The end of the audio: the transcript follows."""
        self.is_whole = True
        self._session.timeouts.clear("audio")
        self._input.finish(whole=True)

    async def close(self) -> None:
        """Stops the work, and charges for the audio; without effect when it has ended."""
        self._emitting.cancel()
        try:
            await self._live.close()
        finally:
            await self._input.settle()

    async def _listen(self) -> None:
        await self._input.pass_on(self._live)
        await self._live.finish()
        await self.close()
        if self._failure is not None:  # a part of a command could be another command
            error = to_api_error(self._failure)
            await self._session.send(wyoming_error(error.message, error.code))
            self._session.finish(close_codes.INTERNAL)
            return
        language = self._input.texts[0][1] if self._input.texts else None
        answer = wyoming_event("transcript", text=self._text, language=language)
        if self._streams:
            start = b"" if self._streamed else wyoming_event("transcript-start", language=language)
            answer = start + answer + wyoming_event("transcript-stop")
        await self._session.send(answer)

    async def _emit(self, event: LiveEvent) -> None:
        match event:
            case FailedUtterance():
                self._failure, self._next_id = event.error, event.sentence_id + 1
                self._input.note_failed(event)
            case LiveTranscript() if event.final or event.sentence_id == self._next_id:
                await self._add(event)

    async def _add(self, heard: LiveTranscript) -> None:
        said = heard.text if heard.final else heard.committed
        separator = separator_of(self._input.texts[0][1]) if self._input.texts else ""
        text = f"{self._text}{separator}{said}" if said else self._text
        if heard.final:
            self._text, self._next_id = text, heard.sentence_id + 1
            if said:
                self._input.texts.append((said, heard.language))
        if self._streams and self._failure is None and len(text) > len(self._streamed):
            language, new = heard.language, text[len(self._streamed) :]
            start = b"" if self._streamed else wyoming_event("transcript-start", language=language)
            self._streamed = text
            await self._session.send(start + wyoming_event("transcript-chunk", text=new))
