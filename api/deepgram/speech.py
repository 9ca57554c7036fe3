"""Deepgram's text to speech: `POST /v1/speak`, and the socket at the same path."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, Self

from fastapi import Query
from pydantic import Field, model_validator
from starlette.responses import Response

from api.callers import CallerDep
from api.deepgram.options import BEARER_OR_TOKEN, DEFAULT_VOICE, foreign_voice, uuid_of
from api.dialects.outputs import BytesWriter, SpeechOutput, audio_answers, voice_for
from api.dialects.requests import DialectQuery, SocketMessage, dialect_socket
from api.http.bodies import RequestModel
from api.http.errors import CODED, to_api_error
from api.http.routing import make_router, name_gaps
from api.http.streaming import StreamedResponse, encode_frames
from api.native.speech import SpokenText
from api.services import Services
from api.sockets.kernel import close_codes
from api.sockets.kernel.conversation import SPOKEN, ClientFault, json_text
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.contexts import ContextsConversation, FlushRules
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.session import (
    ContextFault,
    ContextWire,
    EncodedChunk,
    SpeakingContext,
    SpeechStream,
)
from pipelines.tts.voices import AvailableVoice
from telemetry.tracing import request_id

router = make_router("Deepgram's dialect", scope="tts", visitors=True, schemes=BEARER_OR_TOKEN)

_PCM = (24_000, 8000, 16_000, 22_050, 32_000, 44_100, 48_000)
_G711 = (8000, 16_000)
# Formats by encoding and container; an encoding's first container is its default.
FORMATS: Mapping[tuple[str, str], SpeechOutput] = {
    ("linear16", "wav"): SpeechOutput("wav", "audio/wav", _PCM),
    ("linear16", "none"): SpeechOutput("pcm", "audio/l16", _PCM),
    ("mulaw", "wav"): SpeechOutput("wav_mulaw", "audio/wav", _G711),
    ("mulaw", "none"): SpeechOutput("mulaw", "audio/mulaw", _G711),
    ("alaw", "wav"): SpeechOutput("wav_alaw", "audio/wav", _G711),
    ("alaw", "none"): SpeechOutput("alaw", "audio/alaw", _G711),
    ("mp3", "none"): SpeechOutput("mp3", "audio/mpeg", (22_050, 24_000), (32_000, 48_000, 64_000)),
    ("opus", "ogg"): SpeechOutput("ogg", "audio/ogg", (48_000,), range(4000, 256_001)),
    ("flac", "none"): SpeechOutput("flac", "audio/flac", (48_000, 8000, 16_000, 22_050, 32_000)),
    ("aac", "none"): SpeechOutput("aac", "audio/aac", (22_050, 24_000), range(4000, 192_001)),
}
SENTENCES = FlushRules()


class SpeakQuery(DialectQuery):
    """Voice, audio format and speed of speech."""

    refused = frozenset({"callback"})

    model: str = Field(
        default=DEFAULT_VOICE,
        max_length=200,
        description="Deepgram voice, or name or id of a voice of this service.",
    )
    encoding: Literal["linear16", "mulaw", "alaw", "mp3", "opus", "flac", "aac"] = "mp3"
    container: Literal["wav", "none", "ogg"] | None = None
    sample_rate: int | None = None
    bit_rate: int | None = None
    speed: float = Field(default=1.0, ge=0.5, le=1.5)

    @property
    def output(self) -> SpeechOutput:
        """Audio format; a container that does not fit the encoding is replaced by the default."""
        outputs = (output for (name, _), output in FORMATS.items() if name == self.encoding)
        return FORMATS.get((self.encoding, self.container or ""), next(outputs))

    def encoders(self) -> Callable[[], AudioEncoder]:
        """Returns a function that opens encoders. Raises ApiError(validation_error)."""
        return self.output.opener(self.sample_rate, self.bit_rate)


class SpeakStreamQuery(SpeakQuery):
    """Parameters of the socket, which sends audio without containers."""

    encoding: Literal["linear16", "mulaw", "alaw"] = "linear16"
    container: Literal["none"] = "none"


class DeepgramText(RequestModel):
    """The text to synthesise."""

    text: SpokenText


STREAMED = audio_answers((output.media_type for output in FORMATS.values()), "The audio, streamed")


@router.post("/v2/speak", summary="Stream speech, for Deepgram's clients of Flux", **STREAMED)
@router.post("/v1/speak", summary="Stream speech, for Deepgram's clients", **STREAMED)
async def speak(
    body: DeepgramText, caller: CallerDep, query: Annotated[SpeakQuery, Query()]
) -> Response:
    """Sends the first audio before the second sentence is synthesised.

    If the client disconnects, synthesis stops, and the speech made so far is charged.
    """
    workspace_id = caller.workspace_id
    synthesis = caller.speech.synthesis
    open_encoder = query.encoders()
    async with caller.recording_failures(None):
        voice = await voice_for(query.model, foreign_voice(query.model), caller)
    request = SpeechRequest(
        text=body.text,
        voice_id=voice.id,
        is_makeshift=voice.is_makeshift,
        speed=query.speed,
        workspace_id=workspace_id,
    )
    plan, first, rest = await synthesis.start_stream(request, workspace_id, caller.operation)
    frames = encode_frames(first, rest, BytesWriter(lambda _: open_encoder()))
    answer = StreamedResponse(frames, rest, query.output.media_type)
    fields = {
        "dg-model-name": voice.info.name.encode("ascii", "replace").decode(),
        "dg-model-uuid": voice.id,
        "dg-char-count": str(synthesis.characters(plan)),
        "dg-request-id": request_id.get() or "",
    }
    answer.headers.update(fields)
    name_gaps(answer, plan)
    return answer


class SpokenMessage(SocketMessage):
    """A client's message with text to be spoken."""

    pieces = SPOKEN

    type: str
    text: str | None = None  # required in Speak

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if self.type == "Speak" and self.text is None:
            raise ValueError("text: is required with type=Speak")
        return self


class SpeakMessage(SpokenMessage):
    """Adds text, speaks or drops the buffered text, or ends the session after the speech."""

    type: Literal["Speak", "Flush", "Clear", "Close"]


class VoiceConversation(ContextsConversation):
    """Base class of conversations in the voice that the query names."""

    query_type: type[SpeakStreamQuery] = SpeakStreamQuery

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self.query = self.query_type.of_socket(session.query)
        self._open_encoder = self.query.encoders()
        self.voice: AvailableVoice

    @abstractmethod
    async def begin(self, voice: AvailableVoice) -> None:
        """Greets the client once its voice is found."""

    async def opened(self) -> None:
        model = self.query.model
        try:
            self.voice = await voice_for(model, foreign_voice(model), self.caller)
        except CODED as error:
            self.session.end(to_api_error(error).message, close_codes.POLICY)
        else:
            await self.begin(self.voice)

    def make_stream(self, speed: float, *, timings: bool = False) -> SpeechStream:
        style = SpeechRequest(text="", speed=speed, timings=timings)
        return self.caller.open_stream(self.voice, style, self._open_encoder)


class SpeakConversation(VoiceConversation):
    """One context at a time, in which each sentence is spoken once it is complete."""

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._context: SpeakingContext  # for the text that follows
        self._count = 0  # contexts so far
        self._sequence = 0  # flushes and clears so far

    async def begin(self, voice: AvailableVoice) -> None:
        fields = {
            "request_id": request_id.get() or "",
            "model_name": voice.info.name,
            "model_version": voice.model.id,
            "model_uuid": voice.id,
            "additional_model_uuids": [uuid_of(voice.model)],
        }
        await self.session.send(json_text({"type": "Metadata", **fields}))
        self._open_context()

    async def receive_text(self, text: str) -> None:
        context = self._context
        flushes = self.flushes[context.context_id]
        try:
            message = SpeakMessage.parse(text)
            if message.type == "Speak":
                context.add_text(message.text or "")
                flushes.added()
                return
            flushes.stop()
            if message.type == "Flush":
                context.flush()
            elif message.type == "Close":
                context.close()
            else:
                context.cancel()
                self._open_context()
                await self.session.send(self.numbered("Cleared"))
        except (ClientFault, ContextFault) as fault:
            raise self._as_warning(fault) from None

    async def receive_binary(self, data: bytes) -> None:
        try:
            await super().receive_binary(data)
        except ClientFault as fault:
            raise self._as_warning(fault) from None

    def error(self, message: str) -> str:
        return json_text({"type": "Error", "description": message, "code": "NET-0000"})

    def numbered(self, kind: Literal["Flushed", "Cleared"]) -> str:
        """Returns an event with the next sequence number."""
        number = self._sequence
        self._sequence += 1
        return json_text({"type": kind, "sequence_id": number})

    def warning(self, message: str) -> str:
        fields = {"description": message, "code": "DATA-0000"}
        fields |= {"warn_msg": message, "warn_code": "DATA-0000"}
        return json_text({"type": "Warning", **fields})

    def _as_warning(self, fault: Exception) -> ClientFault:
        return ClientFault(str(fault), self.warning(str(fault)))

    def _open_context(self) -> None:
        stream = self.make_stream(self.query.speed)
        self._count += 1
        self._context = self.open(str(self._count), stream, SpeakWire(self), SENTENCES)
        self.contexts.start(self._context)

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        if context_id == self._context.context_id:
            self.session.finish()


class SpeakWire(ContextWire):
    def __init__(self, conversation: SpeakConversation) -> None:
        self._conversation = conversation

    def audio(self, chunk: EncodedChunk) -> bytes:
        return chunk.data

    def warned(self, dropped: Sequence[str]) -> str:
        return self._conversation.warning(f"markup not followed: {', '.join(dropped)}")

    def flushed(self, *, is_automatic: bool) -> str | None:
        return None if is_automatic else self._conversation.numbered("Flushed")

    def error(self, error: Exception) -> str:
        return self._conversation.error(to_api_error(error).message)


routes = dialect_socket(
    "/v1/speak",
    "tts",
    SpeakConversation,
    lambda query: SpeakStreamQuery.of_socket(query).encoders(),
    BEARER_OR_TOKEN,
)
