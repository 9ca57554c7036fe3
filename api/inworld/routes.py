"""Routes and the socket of Inworld's text-to-speech API."""

import uuid
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from api.callers import CallerDep
from api.dialects.outputs import speak_whole, stream_speech
from api.http.errors import CODED, ApiError, to_api_error
from api.http.routing import BEARER_OR_BASIC, make_router, name_gaps
from api.http.streaming import Base64Json, NdjsonStream, json_line
from api.inworld import messages
from api.native.speech import SpokenText
from api.services import Services
from api.sockets.kernel.conversation import ClientFault, parse_spoken
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.contexts import ContextsConversation
from api.sockets.tts.events import excerpt
from pipelines.audio.encode.encoder import wav_header
from pipelines.tts.session import ContextFault, EncodedChunk, SpeakingContext, SpeechStream
from pipelines.tts.voices import AvailableVoice


class InworldConversation(ContextsConversation):
    """One socket. Only invalid messages count as faults of the client. Unknown contexts do not:
    Inworld's client names closed contexts in keep-alive messages, and closes interrupted turns
    twice."""

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._creates: dict[str, messages.Create] = {}  # by id of the open context

    async def receive_text(self, text: str) -> None:
        context_id: str | None = None
        try:
            event = parse_spoken(text)
            context_id = messages.named_context(event)
            message = messages.parse_message(event)
        except ClientFault as fault:
            raise _fault(fault.message, messages.INVALID_ARGUMENT, context_id) from None
        try:
            await self._handle(message)
        except ClientFault as fault:
            await self.session.send(fault.event or self.error(fault.message))

    async def receive_binary(self, data: bytes) -> None:
        text = "binary messages have no meaning here; send JSON as text"
        raise _fault(text, messages.INVALID_ARGUMENT)

    def error(self, message: str) -> str:
        """Returns the error that ends a session. Invalid messages have codes of their own."""
        return messages.failure(message, messages.ABORTED)

    async def _handle(self, message: messages.ClientMessage) -> None:
        if message.create is not None:
            await self._create(message.context_id or str(uuid.uuid4()), message.create)
            return
        context = self._find(message.context_id)
        try:
            await self._handle_in(context, message)
        except ContextFault as fault:
            raise _fault(str(fault), messages.INVALID_ARGUMENT, context.context_id) from None

    async def _handle_in(self, context: SpeakingContext, message: messages.ClientMessage) -> None:
        """Handles a message about an open context. Raises ContextFault or ClientFault."""
        flushes = self.flushes[context.context_id]
        if (send_text := message.send_text) is not None:
            if send_text.text:  # clients keep the connection alive with empty text
                context.add_text(send_text.text)
                flushes.added()
            if send_text.flush_context is not None:
                flushes.flush()
        elif message.flush_context is not None:
            flushes.flush()
        elif message.update_config is not None:
            create = self._creates[context.context_id]
            await self._update(context, messages.updated(create, message.update_config))
        else:
            flushes.stop()
            if message.close_context is None or context.is_closing:
                context.cancel()  # a second close drops the speech that has not been sent
            else:
                context.close()

    async def _create(self, context_id: str, create: messages.Create) -> None:
        if context_id in self.contexts:
            raise _fault("this context is open already", messages.ALREADY_EXISTS, context_id)
        try:
            self.make_room()
        except ContextFault as fault:
            raise _fault(str(fault), messages.RESOURCE_EXHAUSTED, context_id) from None
        stream = await self._open_stream(create, context_id)
        wire = messages.InworldWire(context_id, create)
        context = self.open(context_id, stream, wire, create.flush_rules)
        self._creates[context_id] = create
        description = messages.description(create, stream.voice.model.id)
        await self.session.send(messages.context_event(context_id, "contextCreated", description))
        self.contexts.start(context)

    async def _update(self, context: SpeakingContext, create: messages.Create) -> None:
        context_id = context.context_id
        stream = await self._open_stream(create, context_id)
        context.change_stream(stream, messages.InworldWire(context_id, create))
        flushes = self.flushes[context_id]
        flushes.stop()
        flushes.change(create.flush_rules, stream.voice.language)
        self._creates[context_id] = create
        description = messages.description(create, stream.voice.model.id)
        await self.session.send(messages.context_event(context_id, "contextUpdated", description))

    async def _open_stream(self, create: messages.Create, context_id: str) -> SpeechStream:
        try:
            return await messages.open_stream(create, self.caller)
        except CODED as error:
            api_error = to_api_error(error)
            code = messages.code_of(api_error.status)
            raise _fault(api_error.message, code, context_id) from None

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        del self._creates[context_id]

    def _find(self, context_id: str | None) -> SpeakingContext:
        """Finds a context by its id, optional if only one is open. Raises ClientFault."""
        context = self.contexts.find(context_id)
        if context is not None:
            return context
        if context_id is not None:
            raise _fault(f"Context {excerpt(context_id)} not found", messages.NOT_FOUND, context_id)
        state = "several are open" if len(self.contexts) else "there is no open context"
        raise _fault(f"context_id is required: {state}", messages.INVALID_ARGUMENT)


def _fault(message: str, code: int, context_id: str | None = None) -> ClientFault:
    return ClientFault(message, messages.failure(message, code, context_id))


TAG = "Inworld's dialect"
router = make_router(TAG, scope="tts", visitors=True, schemes=BEARER_OR_BASIC)
lists = make_router(TAG, scope="tts", schemes=BEARER_OR_BASIC)
routers = (router, lists)
routes = socket_routes(
    "/tts/v1/voice:streamBidirectional",
    SocketRoute("tts", InworldConversation, ("tts",), True, schemes=BEARER_OR_BASIC, greets=False),
)


class InworldBody(messages.Voicing):
    """The text to synthesise, with speech options."""

    free_cues: ClassVar[bool] = True

    text: SpokenText


class _Answer(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True)


class InworldUsage(_Answer):
    processed_characters_count: int
    model_id: str = Field(description="Model that was used.")


class InworldSpeech(_Answer):
    """Audio of the whole text, or of a part of it."""

    audio_content: str = Field(description="Audio in base64.")
    usage: InworldUsage | None = None
    timestamp_info: dict[str, Any] | None = Field(
        default=None, description="`wordAlignment` or `characterAlignment`, on request."
    )


class InworldLine(BaseModel):
    """A line of the stream: a `result`, or an `error` that ends a failed stream."""

    result: InworldSpeech | None = None
    error: messages.RpcStatus | None = None


class InworldVoice(_Answer):
    """An available voice."""

    voice_id: str
    display_name: str
    description: str
    languages: list[str]
    tags: list[str]
    is_custom: bool


class InworldVoices(BaseModel):
    voices: list[InworldVoice]


@lists.get(
    "/tts/v1/voices", summary="List voices, for Inworld's clients", response_model=InworldVoices
)
async def list_voices(caller: CallerDep, filter: str | None = None) -> InworldVoices:
    """Returns all voices, or those of one language, such as with `filter=language=en`."""
    name, _, language = (filter or "").partition("=")
    if filter and (name.strip() != "language" or not language.strip()):
        raise ApiError("validation_error", "filter: only language=CODE is supported")
    code = language.strip().strip('"').lower().replace("_", "-").partition("-")[0]
    matches = [
        _voice(voice)
        for voice in await caller.directory.voices(caller.workspace_id)
        if code in ("", voice.language)
    ]
    matches.sort(key=lambda voice: (voice.languages, voice.display_name))
    return InworldVoices(voices=matches)


@router.post(
    "/tts/v1/voice",
    summary="Synthesise speech, for Inworld's clients",
    response_model=InworldSpeech,
)
async def synthesize(body: InworldBody, caller: CallerDep) -> Response:
    """Returns the whole speech as one file. If the client disconnects, synthesis stops.

    The first 20 disconnects in an hour are free. After that, the speech made so far is charged.
    """
    audio = body.audio_config
    async with caller.recording_failures(body.voice_id):
        stream = await messages.open_stream(body, caller, whole=True)
    is_wav = audio.audio_encoding in messages.WITH_HEADER
    head = wav_header(audio.sample_rate_hertz) if is_wav else b""
    file, words = await speak_whole(stream, body.text, is_wav=is_wav, head=head)
    timing = messages.Alignment(body).whole(words)
    fields = _usage(stream) if timing is None else {"timestampInfo": timing, **_usage(stream)}
    answer = Base64Json("audioContent", file, fields)
    name_gaps(answer, stream)
    return answer


@router.post(
    "/tts/v1/voice:stream",
    summary="Stream speech, for Inworld's clients",
    responses=NdjsonStream.documented(
        InworldLine, "One JSON object per line: a `result`, or an `error` as the last line"
    ),
)
async def stream(body: InworldBody, caller: CallerDep) -> Response:
    """Streams JSON lines. If the client disconnects, the speech made so far is charged."""
    async with caller.recording_failures(body.voice_id):
        stream = await messages.open_stream(body, caller)
    return await stream_speech(stream, body.text, _LineWriter(body, stream), NdjsonStream)


def _voice(voice: AvailableVoice) -> InworldVoice:
    info = voice.info
    return InworldVoice(
        voice_id=voice.id,
        display_name=info.name,
        description=info.description or "",
        languages=[voice.language],
        tags=[info.gender, info.accent.lower()],
        is_custom=voice.custom is not None,
    )


class _LineWriter:
    """Writes `result` lines, the first with the usage, and an `error` line on failure."""

    def __init__(self, body: InworldBody, stream: SpeechStream) -> None:
        self._stream = stream
        self._alignment = messages.Alignment(body)
        self._is_first = True

    def write(self, chunk: EncodedChunk) -> bytes:
        result = messages.audio_body(chunk.data, self._alignment.of(chunk.words or ()))
        if self._is_first:  # the charge is unknown before the first chunk
            result |= _usage(self._stream)
        self._is_first = False
        return json_line({"result": result})

    def finish(self) -> list[bytes]:
        timing = self._alignment.rest(self._stream.spoken_s)
        return [] if timing is None else [json_line({"result": messages.audio_body(b"", timing)})]

    def fail(self, error: Exception) -> bytes:
        api_error = to_api_error(error)
        code = messages.code_of(api_error.status)
        status = messages.RpcStatus(code=code, message=api_error.message)
        return json_line({"error": status.model_dump()})


def _usage(stream: SpeechStream) -> dict[str, Any]:
    usage = InworldUsage(processed_characters_count=stream.charged, model_id=stream.voice.model.id)
    return {"usage": usage.model_dump(by_alias=True)}
