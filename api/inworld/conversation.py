"""Inworld's text-to-speech socket, over the contexts of `/ws/tts`."""

import uuid
from functools import partial

from pydantic import BaseModel

from api.http.errors import to_api_error
from api.inworld.auto_flush import AutoFlush
from api.inworld.encoding import SLOW, open_inworld_encoder
from api.inworld.events import (
    ABORTED,
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    InworldWire,
    code_of,
    context_event,
    description,
    failure,
)
from api.inworld.messages import (
    CancelMessage,
    ClientMessage,
    CloseMessage,
    Create,
    CreateMessage,
    SendTextMessage,
    UpdateMessage,
    named_context,
    parse_message,
    updated,
)
from api.services import SpeechServices
from api.sockets.kernel.conversation import ClientFault, Service
from api.sockets.kernel.events import parse_event
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.events import shown
from api.sockets.tts.output import SocketOutput
from db.errors import DatabaseError
from models.errors import EngineError
from pipelines.errors import PipelineError
from pipelines.tts.context_voice import ContextVoice, find_voice
from pipelines.tts.session import MAX_CONTEXTS, ContextFault, OpenContexts, SpeakingContext
from pipelines.tts.voice_selection import AvailableVoice


class InworldConversation:
    """One socket, which stays open when its last context was closed.

    Only what cannot be read counts as a fault of the client: its pings name contexts that are
    gone, and turns that were interrupted are closed twice.
    """

    service: Service = "tts"

    def __init__(self, session: SocketSession, speech: SpeechServices) -> None:
        self._session = session
        self._synthesis = speech.synthesis
        self._contexts = OpenContexts(session.spawn, self._on_closed)
        self._made: dict[str, tuple[Create, AutoFlush]] = {}

    async def opened(self) -> None:
        """The client speaks first."""

    async def receive_text(self, text: str) -> None:
        named: str | None = None
        try:
            event = parse_event(text)
            named = named_context(event)
            message = parse_message(event)
        except ClientFault as fault:
            raise _fault(fault.message, INVALID_ARGUMENT, named) from None
        try:
            await self._do(message)
        except ClientFault as fault:
            await self._session.send(fault.event or self.error(fault.message))

    async def receive_binary(self, data: bytes) -> None:
        text = "binary messages have no meaning here; send JSON as text"
        raise _fault(text, INVALID_ARGUMENT)

    async def closed(self) -> None:
        for _, flushes in self._made.values():
            flushes.stop()

    def error(self, message: str) -> BaseModel:
        """Why the session ends; what is wrong with a message has a code of its own."""
        return failure(message, ABORTED)

    async def _do(self, message: ClientMessage) -> None:
        if isinstance(message, CreateMessage):
            await self._create(message)
            return
        context = self._find(message.context_id)
        try:
            await self._do_in(context, message)
        except ContextFault as fault:
            raise _fault(str(fault), INVALID_ARGUMENT, context.context_id) from None

    async def _do_in(self, context: SpeakingContext, message: ClientMessage) -> None:
        """Raises ContextFault or ClientFault."""
        create, flushes = self._made[context.context_id]
        if isinstance(message, SendTextMessage):
            if message.send_text.text:  # empty text keeps a connection alive
                context.add_text(message.send_text.text)
                flushes.added()
            if message.send_text.flush_context is not None:
                self._flush(context, flushes)
        elif isinstance(message, UpdateMessage):
            await self._update(context, updated(create, message.update_config))
        elif isinstance(message, CancelMessage) or (
            isinstance(message, CloseMessage) and context.is_closing
        ):
            # Who closes again what is still spoken wants no more of it.
            flushes.stop()
            context.cancel()
        elif isinstance(message, CloseMessage):
            flushes.stop()
            context.close()
        else:
            self._flush(context, flushes)

    def _flush(self, context: SpeakingContext, flushes: AutoFlush) -> None:
        flushes.stop()
        if context.is_closing:
            return
        if context.is_crowded:  # it comes with what waits already
            context.flush_automatically(len(context.buffered))
        else:
            context.flush()

    async def _create(self, message: CreateMessage) -> None:
        context_id = message.context_id or str(uuid.uuid4())
        if context_id in self._contexts:
            raise _fault("this context is open already", ALREADY_EXISTS, context_id)
        if len(self._contexts) >= MAX_CONTEXTS:
            # Clients open one for each turn ahead, and forget those that came to nothing.
            forgotten = self._contexts.find_idle()
            if forgotten is None:
                text = f"a connection has at most {MAX_CONTEXTS} contexts that speak"
                raise _fault(text, RESOURCE_EXHAUSTED, context_id)
            forgotten.cancel()
        create = message.create
        voice, offered = await self._voice(create, context_id)
        context = SpeakingContext(context_id, voice, self._output(context_id, create))
        self._contexts.open(context)
        flushes = AutoFlush(context, create, offered.voice.language)
        self._made[context_id] = create, flushes
        made = description(create, offered.model.id)
        await self._session.send(context_event(context_id, "contextCreated", made))
        self._contexts.start(context)

    async def _update(self, context: SpeakingContext, create: Create) -> None:
        context_id = context.context_id
        voice, offered = await self._voice(create, context_id)
        context.change_voice(voice, self._output(context_id, create))
        _, flushes = self._made[context_id]
        flushes.stop()
        flushes.change(create, offered.voice.language)
        self._made[context_id] = create, flushes
        made = description(create, offered.model.id)
        await self._session.send(context_event(context_id, "contextUpdated", made))

    async def _voice(self, create: Create, context_id: str) -> tuple[ContextVoice, AvailableVoice]:
        workspace_id = self._session.principal.workspace_id
        try:
            offered = await find_voice(self._synthesis.pipeline, workspace_id, create.voice_id)
        except (EngineError, PipelineError, DatabaseError) as error:
            answer = to_api_error(error)
            raise _fault(answer.message, code_of(answer.status), context_id) from None
        audio = create.audio_config
        voice = ContextVoice(
            self._synthesis,
            workspace_id,
            offered,
            create.style,
            partial(open_inworld_encoder, audio.audio_encoding, audio.sample_rate_hertz),
            slow_encoder=audio.audio_encoding in SLOW,
        )
        return voice, offered

    def _output(self, context_id: str, create: Create) -> SocketOutput:
        return SocketOutput(self._session, InworldWire(context_id, create))

    def _on_closed(self, context_id: str) -> None:
        _, flushes = self._made.pop(context_id)
        flushes.stop()

    def _find(self, wanted: str | None) -> SpeakingContext:
        """The context that a message means; with one open, its id may be left out."""
        context = self._contexts.find(wanted)
        if context is not None:
            return context
        if wanted is not None:
            raise _fault(f"Context {shown(wanted)} not found", NOT_FOUND, wanted)
        state = "several are open" if len(self._contexts) else "there is no open context"
        raise _fault(f"context_id is required: {state}", INVALID_ARGUMENT)


def _fault(message: str, code: int, context_id: str | None = None) -> ClientFault:
    return ClientFault(message, failure(message, code, context_id))
