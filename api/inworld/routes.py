"""Inworld's text-to-speech API at its own paths, for clients that speak it, and its socket."""

import uuid
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from api.dialects.outputs import nothing_spoken, speak_whole, stream_speech
from api.http.errors import CODED, ApiError, to_api_error
from api.http.ignored_fields import name_unread
from api.http.routing import (
    BEARER_OR_BASIC,
    OperationDep,
    PrincipalDep,
    SpeechDep,
    VoicesDep,
    make_router,
)
from api.http.streaming import Base64Json, NdjsonStream, json_line
from api.inworld import messages
from api.native.speech import SpokenText
from api.services import Services
from api.sockets.kernel.conversation import ClientFault, parse_spoken
from api.sockets.kernel.routes import SocketRoute, socket_routes
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.contexts import ContextsConversation
from api.sockets.tts.events import shown
from pipelines.billing.operation import Operation
from pipelines.tts.paid import PaidSynthesis
from pipelines.tts.session import ContextFault, EncodedChunk, SpeakingContext, SpeechStream
from pipelines.tts.voices import AvailableVoice


class InworldConversation(ContextsConversation):
    """One socket.

    Only unreadable messages count as faults of the client: its keep-alive messages name closed
    contexts, and it closes interrupted turns twice.
    """

    def __init__(self, session: SocketSession, services: Services) -> None:
        super().__init__(session, services)
        self._creates: dict[str, messages.Create] = {}  # of the open contexts

    async def receive_text(self, text: str) -> None:
        named: str | None = None
        try:
            event = parse_spoken(text)
            named = messages.named_context(event)
            message = messages.parse_message(event)
        except ClientFault as fault:
            raise _fault(fault.message, messages.INVALID_ARGUMENT, named) from None
        try:
            await self._handle(message)
        except ClientFault as fault:
            await self.session.send(fault.event or self.error(fault.message))

    async def receive_binary(self, data: bytes) -> None:
        text = "binary messages have no meaning here; send JSON as text"
        raise _fault(text, messages.INVALID_ARGUMENT)

    def error(self, message: str) -> str:
        """The error that ends a session; wrong messages have codes of their own."""
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
        """Raises ContextFault or ClientFault."""
        flushes = self.flushes[context.context_id]
        if (sent := message.send_text) is not None:
            if sent.text:  # empty text keeps a connection alive
                context.add_text(sent.text)
                flushes.added()
            if sent.flush_context is not None:
                flushes.flush()
        elif message.flush_context is not None:
            flushes.flush()
        elif message.update_config is not None:
            create = self._creates[context.context_id]
            await self._update(context, messages.updated(create, message.update_config))
        else:
            flushes.stop()
            if message.close_context is None or context.is_closing:
                context.cancel()  # a second close while speech is still sent drops the rest
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
        context = self.open(
            context_id, stream, messages.InworldWire(context_id, create), create.flushing
        )
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
        flushes.change(create.flushing, stream.voice.language)
        self._creates[context_id] = create
        description = messages.description(create, stream.voice.model.id)
        await self.session.send(messages.context_event(context_id, "contextUpdated", description))

    async def _open_stream(self, create: messages.Create, context_id: str) -> SpeechStream:
        workspace_id, payer = self.session.principal.workspace_id, self.session.payer
        try:
            return await messages.open_stream(create, self.synthesis, workspace_id, payer)
        except CODED as error:
            answer = to_api_error(error)
            raise _fault(answer.message, messages.code_of(answer.status), context_id) from None

    def on_closed(self, context_id: str) -> None:
        super().on_closed(context_id)
        del self._creates[context_id]

    def _find(self, wanted: str | None) -> SpeakingContext:
        """The context that a message means; with one open, its id may be left out."""
        context = self.contexts.find(wanted)
        if context is not None:
            return context
        if wanted is not None:
            raise _fault(f"Context {shown(wanted)} not found", messages.NOT_FOUND, wanted)
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


@lists.get("/tts/v1/voices", summary="List voices", response_model=InworldVoices)
async def list_voices(
    principal: PrincipalDep, voices: VoicesDep, filter: str | None = None
) -> InworldVoices:
    """Returns all voices. `filter=language=en` selects one language."""
    name, _, language = (filter or "").partition("=")
    if filter and (name.strip() != "language" or not language.strip()):
        raise ApiError("validation_error", "filter: only language=CODE is supported")
    wanted = language.strip().strip('"').lower().replace("_", "-").partition("-")[0]
    listed = [
        _listed(one)
        for one in await voices.custom.directory.voices(principal.workspace_id)
        if wanted in ("", one.language)
    ]
    return InworldVoices(voices=sorted(listed, key=lambda one: (one.languages, one.display_name)))


@router.post("/tts/v1/voice", summary="Synthesise speech", response_model=InworldSpeech)
async def synthesize(
    body: InworldBody, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """Returns the whole speech as one file. If the client disconnects, synthesis stops.

    The first 20 disconnects in an hour are free; after that, the speech made so far is charged.
    """
    audio = body.audio_config
    workspace_id = principal.workspace_id
    opened = await _open_stream(body, speech.synthesis, workspace_id, operation, whole=True)
    file = messages.WholeFile(audio.audio_encoding, audio.sample_rate_hertz)
    words = await speak_whole(opened, body.text, file.add)
    if file.is_empty:
        raise nothing_spoken()
    timing = messages.Alignment(body).whole(words)
    others = _usage(opened) if timing is None else {"timestampInfo": timing, **_usage(opened)}
    answer = Base64Json("audioContent", file.finish(), others)
    name_unread(answer, opened.unread)
    return answer


@router.post(
    "/tts/v1/voice:stream",
    summary="Stream speech",
    responses=NdjsonStream.documented(
        InworldLine, "One JSON object per line: any number of `result`, or `error` at the end"
    ),
)
async def stream(
    body: InworldBody, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """Streams JSON lines. If the client disconnects, the speech made so far is charged."""
    opened = await _open_stream(body, speech.synthesis, principal.workspace_id, operation)
    return await stream_speech(opened, body.text, _LineWriter(body, opened), NdjsonStream)


def _listed(voice: AvailableVoice) -> InworldVoice:
    info = voice.info
    return InworldVoice(
        voice_id=voice.id,
        display_name=info.name,
        description=info.description or "",
        languages=[voice.language],
        tags=[info.gender, info.accent.lower()],
        is_custom=voice.custom is not None,
    )


async def _open_stream(
    body: InworldBody,
    synthesis: PaidSynthesis,
    workspace_id: int,
    operation: Operation,
    *,
    whole: bool = False,
) -> SpeechStream:
    async with synthesis.events.recording(workspace_id, "tts.failed", voice_id=body.voice_id):
        return await messages.open_stream(body, synthesis, workspace_id, operation, whole=whole)


class _LineWriter:
    """Writes `result` lines, and an `error` line when the stream fails. The usage comes first."""

    def __init__(self, body: InworldBody, stream: SpeechStream) -> None:
        self._stream = stream
        self._alignment = messages.Alignment(body)
        self._is_first = True

    def write(self, chunk: EncodedChunk) -> bytes:
        result = messages.audio_body(chunk.data, self._alignment.of(chunk.words or ()))
        if self._is_first:  # only now is known what is charged
            result |= _usage(self._stream)
        self._is_first = False
        return json_line({"result": result})

    def finish(self) -> list[bytes]:
        timing = self._alignment.rest(self._stream.spoken_s)
        return [] if timing is None else [json_line({"result": messages.audio_body(b"", timing)})]

    def fail(self, error: Exception) -> bytes:
        shown = to_api_error(error)
        status = messages.RpcStatus(code=messages.code_of(shown.status), message=shown.message)
        return json_line({"error": status.model_dump()})


def _usage(stream: SpeechStream) -> dict[str, Any]:
    model_id = stream.voice.model.id
    usage = InworldUsage(processed_characters_count=stream.charged, model_id=model_id)
    return {"usage": usage.model_dump(by_alias=True)}
