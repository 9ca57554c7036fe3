"""Cartesia's speech to text: recordings, and sockets with and without turn detection."""

import asyncio
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field

from api.callers import CallerDep
from api.cartesia.routes import PREFIX, SCHEMES, TAG, Json, cartesia_error
from api.dialects.outputs import columns
from api.dialects.requests import DialectQuery, SocketMessage, check_model, dialect_socket
from api.dialects.turns import TurnEvent, TurnListener
from api.http.errors import ApiError, InvalidField, to_api_error
from api.http.routing import make_router
from api.http.uploads import form_schema, receive_form
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.stt.listening import ListeningConversation, SocketListener
from models.stt.base import Word
from models.stt.options import KeyTerms, RecognitionOptions
from pipelines.audio.decode.stream import LiveEncoding, add_wav_header
from pipelines.stt.decoding import SessionOptions
from pipelines.stt.endpointing import SemanticTurns
from pipelines.stt.events import FailedUtterance, LiveEvent, LiveTranscript
from pipelines.stt.file import FileTranscript
from pipelines.stt.formatting import separator_of
from telemetry.tracing import request_id

router = make_router(TAG, scope="stt", visitors=True, schemes=SCHEMES)

RECOGNISERS = ("ink-",)  # beginnings of names that stand for the deployed recogniser
Encoding = Literal["pcm_s16le", "pcm_s32le", "pcm_mulaw", "pcm_alaw"]
# Encodings, with the bytes of a sample.
ENCODINGS: dict[Encoding, tuple[LiveEncoding, int]] = {
    "pcm_s16le": ("linear", 2),
    "pcm_s32le": ("linear", 4),
    "pcm_mulaw": ("mulaw", 1),
    "pcm_alaw": ("alaw", 1),
}
Language = Annotated[str, Field(max_length=35)]
SILENCE = 180.0, "no message came for 180 seconds", close_codes.POLICY
INTERIM_MS = 500  # time between interims
UPDATE_MS = 300  # time between updates of a turn
WHISPER_SILENCE_S = 0.5  # silence that ends an utterance of `ink-whisper`
FIRST_WITH_COLUMNS = "2026"  # first API version whose words are parallel lists instead of objects
WHOLE_S = 3.0  # silence after which the speech so far is decoded, before the client finalizes it
# Silence that ends a turn which sounds unfinished. Cartesia's likelihood of speech falls with the
# silence, so its turns seldom last until the timeout.
LONGEST_WAIT_MS = 800


class RawAudioQuery(DialectQuery):
    encoding: Encoding | None = None
    sample_rate: int | None = Field(default=None, ge=8000, le=48_000)


class TranscribeFields(DialectQuery):
    """Options of a transcription as form fields."""

    model: str = Field(max_length=100, description="A model of Cartesia, or a model id.")
    language: Language = "en"
    timestamp_granularities: list[Literal["word"]] = []


@router.post(
    f"{PREFIX}/stt",
    summary="Transcribe a recording, for Cartesia's clients",
    openapi_extra=form_schema("file", TranscribeFields),
)
async def transcribe(
    request: Request, caller: CallerDep, query: Annotated[RawAudioQuery, Query()]
) -> Json:
    """Transcribes a file, or raw samples in `encoding`. Stops if the client disconnects."""
    async with receive_form(request, before_large=caller.check_credit) as form:
        fields = form.read(TranscribeFields, {"timestamp_granularities"})
        model = await caller.speech.live_transcription.transcriber.describe()
        check_model("model", RECOGNISERS, fields.model, model)
        path = form.file("file").path
        if query.encoding is not None:
            if query.sample_rate is None:
                raise InvalidField("sample_rate", f"is required with encoding={query.encoding}")
            samples, width = ENCODINGS[query.encoding]
            await asyncio.to_thread(add_wav_header, path, samples, query.sample_rate, width)
        options = RecognitionOptions(
            language=fields.language, words=bool(fields.timestamp_granularities)
        )
        answer = partial(_transcript, has_words=options.words)
        return await caller.transcribe(request, path, options, answer)


def _transcript(transcript: FileTranscript, *, has_words: bool) -> Json:
    answer: Json = {
        "type": "transcript",
        "request_id": request_id.get() or "",
        "text": transcript.text,
        "language": transcript.language,
        "duration": round(transcript.duration_s, 3),
    }
    if has_words:
        answer["words"] = [_word(word) for word in transcript.words]
    return answer


def _word(word: Word) -> Json:
    return {"word": word.word, "start": round(word.start, 3), "end": round(word.end, 3)}


class InkQuery(DialectQuery):
    """Parameters that both sockets share."""

    model: str = Field(max_length=100)
    language: Language = "en"
    encoding: Encoding
    sample_rate: int = Field(ge=8000, le=48_000)
    keyterm: KeyTerms = []

    def recognition(self) -> RecognitionOptions:
        return RecognitionOptions(
            languages=(self.language,), words=True, keyterms=tuple(self.keyterm)
        )


class InkUtterancesQuery(InkQuery):
    """Parameters of the socket whose client ends the utterances."""

    max_silence_duration_secs: float | None = Field(default=None, ge=0.1, le=60)

    @property
    def options(self) -> SessionOptions:
        is_whisper = self.model.startswith("ink-whisper")
        silence_s = self.max_silence_duration_secs or (WHISPER_SILENCE_S if is_whisper else WHOLE_S)
        return SessionOptions(
            recognition=self.recognition(),
            utterance_end_ms=round(1000 * silence_s),
            interim_ms=INTERIM_MS,
        )


class InkTurnsQuery(InkQuery):
    """Parameters of the socket that finds turns. The thresholds are likelihoods of speech. A turn
    starts with its first words, not by a threshold, and ends below `turn_end_threshold`."""

    turn_start_threshold: float = Field(default=0.8, ge=0.5, le=0.9)
    turn_eager_end_threshold: float = Field(default=0.4, ge=0.3, le=0.6)
    turn_end_threshold: float = Field(default=0.2, ge=0.05, le=0.5)
    turn_end_timeout_ms: float = Field(default=5600, ge=640, le=11_200)

    @property
    def options(self) -> SessionOptions:
        wait_ms = min(round(self.turn_end_timeout_ms), LONGEST_WAIT_MS)
        return SessionOptions(
            recognition=self.recognition(),
            interim_ms=UPDATE_MS,
            turns=SemanticTurns(wait_ms, complete=1 - self.turn_end_threshold),
        )


class CartesiaListening(ListeningConversation):
    """Base class of both sockets, which have one channel."""

    silence = SILENCE
    query: InkUtterancesQuery | InkTurnsQuery
    listener: SocketListener

    def event(self, kind: str, **fields: Any) -> str:
        return json_text({"type": kind, "request_id": self.request_id, **fields})

    def failure(self, error: Exception) -> str:
        """Returns the event of an error."""
        api_error = to_api_error(error)
        body, _ = cartesia_error(api_error, self.request_id)
        return json_text({"type": "error", "status_code": api_error.status, **body})

    def error(self, message: str) -> str:
        return self.failure(ApiError("validation_error", message))

    async def begin(self) -> None:
        check_model("model", RECOGNISERS, self.query.model, self.model)
        await self.listener.start(self.query.options)

    async def accept(self, data: bytes) -> bool:
        encoding, width = ENCODINGS[self.query.encoding]
        await self.listener.input.accept(data, encoding, self.query.sample_rate, width)
        return False


class ManualConversation(CartesiaListening):
    """Sends the text of each utterance while it grows, and when it has ended."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query: InkUtterancesQuery = InkUtterancesQuery.of_socket(socket.query)
        version = socket.headers.get("cartesia-version") or socket.query.get("cartesia_version")
        self.has_columns = (version or FIRST_WITH_COLUMNS) >= FIRST_WITH_COLUMNS
        self.listener = InkUtterances(self)
        self.listeners = [self.listener]

    async def handle(self, text: str) -> bool:
        command = text.strip().strip('"')  # clients send it as text, or as a JSON string
        if command not in ("finalize", "close", "done"):
            raise ClientFault("send finalize or close, as text or JSON, or binary audio")
        if command == "finalize":
            self.listener.commit()
        return command != "finalize"

    async def summarise(self) -> None:
        await self.socket.send(self.event("done"))


class InkUtterances(SocketListener):
    """Sends texts, which clients join without separators."""

    def __init__(self, stream: ManualConversation) -> None:
        super().__init__(stream.socket, stream.speech, stream.listener_ended)
        self._stream = stream
        self._has_text = False  # whether a final with text was sent

    async def emit(self, event: LiveEvent) -> None:
        if isinstance(event, FailedUtterance):
            await self._socket.send(self._stream.failure(event.error))
            await self._confirm(event.sentence_id)
        elif isinstance(event, LiveTranscript):
            if event.text:
                await self._send_text(event)
            if event.final and not event.cut:
                await self._confirm(event.sentence_id)

    async def _confirm(self, sentence_id: int) -> None:
        if sentence_id in self.committed:
            await self._socket.send(self._stream.event("flush_done"))

    async def _send_text(self, transcript: LiveTranscript) -> None:
        separator = separator_of(transcript.language) if self._has_text else ""
        self._has_text = self._has_text or transcript.final
        fields: Json = {
            "text": separator + transcript.text,
            "is_final": transcript.final,
            "duration": round(transcript.duration_s, 3),
            "language": transcript.language,
        }
        if transcript.words:
            if self._stream.has_columns:
                spans = [(word.word, word.start, word.end) for word in transcript.words]
                fields["words"] = [columns(spans, "words", "start", "end")]
            else:
                fields["words"] = [_word(word) for word in transcript.words]
        await self._socket.send(self._stream.event("transcript", **fields))


class InkTurnsMessage(SocketMessage):
    """A message of the client. `config` changes thresholds for the audio that follows."""

    type: Literal["close", "config"]
    turn: dict[
        Literal["start_threshold", "eager_end_threshold", "end_threshold", "end_timeout_ms"],
        float | None,
    ] = {}


class TurnsConversation(CartesiaListening):
    """A stream whose listener reports turns."""

    def __init__(self, socket: SocketSession, services: Services) -> None:
        super().__init__(socket, services)
        self.query: InkTurnsQuery = InkTurnsQuery.of_socket(socket.query)
        self.listener = CartesiaTurns(self)
        self.listeners = [self.listener]

    async def begin(self) -> None:
        await super().begin()
        await self.socket.send(self.event("connected"))

    async def handle(self, text: str) -> bool:
        message = InkTurnsMessage.parse(text)
        if message.type == "config":
            query = self.query.changed(
                {f"turn_{name}": value for name, value in message.turn.items() if value}
            )
            await self.listener.change(query.options)
            self.query = query
        return message.type == "close"


EVENTS: dict[TurnEvent, str] = {
    "StartOfTurn": "turn.start",
    "Update": "turn.update",
    "EagerEndOfTurn": "turn.eager_end",
    "TurnResumed": "turn.resume",
    "EndOfTurn": "turn.end",
}
WITHOUT_TEXT = ("StartOfTurn", "TurnResumed")


class CartesiaTurns(TurnListener[TurnsConversation]):
    @property
    def least_completeness(self) -> float:
        return 1 - self._conversation.query.turn_eager_end_threshold

    async def warn(self, message: str) -> None:
        await self._socket.send(self._conversation.failure(ApiError("unavailable", message)))

    async def send_event(self, event: TurnEvent, text: str, **fields: Any) -> None:
        if event in WITHOUT_TEXT:
            await self._socket.send(self._conversation.event(EVENTS[event]))
            event = "Update"
        if text:
            await self._socket.send(self._conversation.event(EVENTS[event], transcript=text))


# Pipecat's `CartesiaSTTService` drops the path of its base URL.
routes = [
    route
    for path, conversation, query in (
        (f"{PREFIX}/stt/websocket", ManualConversation, InkUtterancesQuery),
        ("/stt/websocket", ManualConversation, InkUtterancesQuery),
        (f"{PREFIX}/stt/turns/websocket", TurnsConversation, InkTurnsQuery),
    )
    for route in dialect_socket(
        path, "stt", conversation, query.of_socket, SCHEMES, key_queries=("api_key", "access_token")
    )
]
