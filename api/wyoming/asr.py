"""Speech to text for Wyoming, with a live session for each spoken command."""

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

INTERIM_MS = 1000  # time between interims, whose committed words are streamed


class SpokenCommand(SocketListener):
    """One command: takes its audio, and sends one transcript of all its utterances."""

    def __init__(
        self, session: SocketSession, speech: SpeechServices, request: WyomingEvent
    ) -> None:
        super().__init__(session, speech, self._answer)
        self.is_whole = False  # whether all audio has arrived
        self._request = request
        self._format: tuple[int, int, int] | None = None
        self._text = ""  # text of the finals so far
        self._streamed = ""  # the part of the text that was streamed
        self._next_id = 1  # sentence_id of the next final

    async def begin(self) -> None:
        """Starts listening. Raises the errors of `start`."""
        request = self._request
        recognition = RecognitionOptions(
            languages=(request.language,) if request.language else (),
            keyterms=(*(request.transcript_names or ()), *(request.transcript_terms or ())),
        )
        interim_ms = INTERIM_MS if request.streams else None
        await self.start(SessionOptions(recognition=recognition, interim_ms=interim_ms))

    async def accept(self, samples: WyomingEvent, payload: bytes) -> None:
        """Takes audio. Raises ClientFault, or InsufficientCredit; the audio is then dropped."""
        audio_format = samples.rate, samples.width, samples.channels
        if self._format not in (None, audio_format):
            raise ClientFault(f"{samples.type}: the format differs from that of the earlier audio")
        self._format = audio_format
        seconds = self._speech.live_transcription.limits.audio_timeout_s
        self._socket.timeouts.set("audio", seconds, f"no audio came for {seconds:g} seconds")
        await self.input.accept(
            payload, "linear", samples.rate, width=samples.width, channels=samples.channels
        )

    def finish(self) -> None:
        """Ends the audio. The transcript is sent once it is ready."""
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
        if not self._request.streams:  # no part of the transcript was sent, so nothing is charged
            self.input.meter.cut(self.input.received_s)
        await super().close()

    async def _answer(self) -> None:
        failure = self.input.failure
        if failure is not None and not self._streamed:  # no part of the transcript is sent
            self.input.meter.forgive(round(self.input.received_s * 1000))
        await super().close()
        if failure is not None:  # part of a command could be a different command
            error = to_api_error(failure)
            await self._socket.send(wyoming_error(error.message, error.code))
            self._socket.finish(close_codes.INTERNAL)
            return
        language = self.input.texts[0][1] if self.input.texts else None
        answer = wyoming_event("transcript", text=self._text, language=language)
        if self._request.streams:
            start = b"" if self._streamed else wyoming_event("transcript-start", language=language)
            answer = start + answer + wyoming_event("transcript-stop")
        await self._socket.send(answer)

    async def _add(self, transcript: LiveTranscript) -> None:
        addition = transcript.text if transcript.final else transcript.committed
        separator = separator_of(self.input.texts[0][1]) if self._text else ""
        text = f"{self._text}{separator}{addition}" if addition else self._text
        if transcript.final:
            self._text = text
            self._next_id = transcript.sentence_id + 1
        streams = self._request.streams and self.input.failure is None
        if streams and len(text) > len(self._streamed):
            language = transcript.language
            new = text[len(self._streamed) :]
            start = b"" if self._streamed else wyoming_event("transcript-start", language=language)
            self._streamed = text
            await self._socket.send(start + wyoming_event("transcript-chunk", text=new))
