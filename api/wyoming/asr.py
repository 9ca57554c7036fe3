"""Speech to text for Wyoming: a live session for each command, from its audio to its transcript."""

from api.http.errors import to_api_error
from api.services import SpeechServices
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import SocketListener
from api.wyoming.events import WyomingEvent, wyoming_error, wyoming_event
from models.stt.options import RecognitionOptions
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.formatting import separator_of

INTERIM_MS = 1000  # between the interims whose certain words are streamed


class SpokenCommand(SocketListener):
    """The audio of one command, and the transcript of all that is said in it."""

    def __init__(self, session: SocketSession, speech: SpeechServices, asked: WyomingEvent) -> None:
        super().__init__(session, speech, self._answer)
        self.is_whole = False  # no audio follows
        self._asked = asked
        self._format: tuple[int, int, int] | None = None
        self._text = ""  # of the finals
        self._streamed = ""  # the beginning of the text
        self._next_id = 1  # of the sentence whose text comes next

    async def begin(self) -> None:
        """Raises as `start`."""
        asked = self._asked
        recognition = RecognitionOptions(
            languages=(asked.language,) if asked.language else (),
            keyterms=(*(asked.transcript_names or ()), *(asked.transcript_terms or ())),
        )
        interim_ms = INTERIM_MS if asked.streams else None
        await self.start(SessionOptions(recognition=recognition, interim_ms=interim_ms))

    async def accept(self, samples: WyomingEvent, payload: bytes) -> None:
        """Raises ClientFault, or InsufficientCredit: then the audio is dropped."""
        audio_format = samples.rate, samples.width, samples.channels
        if self._format not in (None, audio_format):
            raise ClientFault(f"{samples.type}: the format is not that of the audio before")
        self._format = audio_format
        seconds = self._speech.live_transcription.limits.audio_timeout_s
        self._socket.timeouts.set("audio", seconds, f"no audio came for {seconds:g} seconds")
        await self.input.accept(
            payload, "linear", samples.rate, width=samples.width, channels=samples.channels
        )

    def finish(self) -> None:
        """The end of the audio: the transcript follows."""
        self.is_whole = True
        self._socket.timeouts.clear("audio")
        self.input.finish(whole=True)

    async def emit(self, event: LiveEvent) -> None:
        match event:
            case FailedUtterance():
                self._next_id = event.sentence_id + 1
            case LiveTranscript() if event.final or event.sentence_id == self._next_id:
                await self._add(event)

    async def close(self) -> None:
        if not self._asked.streams:  # nothing was sent of a transcript that is cut
            self.input.meter.cut(self.input.received_s)
        await super().close()

    async def _answer(self) -> None:
        await super().close()
        if self.input.failure is not None:  # a part of a command could be another command
            error = to_api_error(self.input.failure)
            await self._socket.send(wyoming_error(error.message, error.code))
            self._socket.finish(close_codes.INTERNAL)
            return
        language = self.input.texts[0][1] if self.input.texts else None
        answer = wyoming_event("transcript", text=self._text, language=language)
        if self._asked.streams:
            start = b"" if self._streamed else wyoming_event("transcript-start", language=language)
            answer = start + answer + wyoming_event("transcript-stop")
        await self._socket.send(answer)

    async def _add(self, heard: LiveTranscript) -> None:
        said = heard.text if heard.final else heard.committed
        separator = separator_of(self.input.texts[0][1]) if self._text else ""
        text = f"{self._text}{separator}{said}" if said else self._text
        if heard.final:
            self._text, self._next_id = text, heard.sentence_id + 1
        streams = self._asked.streams and self.input.failure is None
        if streams and len(text) > len(self._streamed):
            language, new = heard.language, text[len(self._streamed) :]
            start = b"" if self._streamed else wyoming_event("transcript-start", language=language)
            self._streamed = text
            await self._socket.send(start + wyoming_event("transcript-chunk", text=new))
