"""Inworld's text-to-speech socket, over the contexts of `/ws/tts`."""

import uuid

from api.http.errors import CODED, to_api_error
from api.inworld.messages import (
    ABORTED,
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    ClientMessage,
    Create,
    InworldWire,
    code_of,
    context_event,
    description,
    failure,
    named_context,
    open_voice,
    parse_message,
    updated,
)
from api.services import Services
from api.sockets.kernel.conversation import ClientFault, Conversation, parse_event
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.auto_flush import AutoFlush
from api.sockets.tts.events import shown
from pipelines.tts.session import (
    MAX_CONTEXTS,
    ContextFault,
    ContextVoice,
    OpenContexts,
    SpeakingContext,
)


class InworldConversation(Conversation):
    """One socket, which stays open when its last context was closed.

    Only unreadable messages count as faults of the client: its keep-alive messages name closed
    contexts, and it closes interrupted turns twice.
    """

    def __init__(self, session: SocketSession, services: Services) -> None:
        self._session = session
        self._synthesis = services.speech.synthesis
        self._contexts = OpenContexts(session.spawn, self._on_closed)
        self._open: dict[str, tuple[Create, AutoFlush]] = {}

    async def receive_text(self, text: str) -> None:
        named: str | None = None
        try:
            event = parse_event(text)
            named = named_context(event)
            message = parse_message(event)
        except ClientFault as fault:
            raise _fault(fault.message, INVALID_ARGUMENT, named) from None
        try:
            await self._handle(message)
        except ClientFault as fault:
            await self._session.send(fault.event or self.error(fault.message))

    async def receive_binary(self, data: bytes) -> None:
        text = "binary messages have no meaning here; send JSON as text"
        raise _fault(text, INVALID_ARGUMENT)

    async def closed(self) -> None:
        for _, flushes in self._open.values():
            flushes.stop()

    def error(self, message: str) -> str:
        """The error that ends a session; wrong messages have codes of their own."""
        return failure(message, ABORTED)

    async def _handle(self, message: ClientMessage) -> None:
        if message.create is not None:
            await self._create(message.context_id or str(uuid.uuid4()), message.create)
            return
        context = self._find(message.context_id)
        try:
            await self._handle_in(context, message)
        except ContextFault as fault:
            raise _fault(str(fault), INVALID_ARGUMENT, context.context_id) from None

    async def _handle_in(self, context: SpeakingContext, message: ClientMessage) -> None:
        """Raises ContextFault or ClientFault."""
        create, flushes = self._open[context.context_id]
        if (sent := message.send_text) is not None:
            if sent.text:  # empty text keeps a connection alive
                context.add_text(sent.text)
                flushes.added()
            if sent.flush_context is not None:
                flushes.flush()
        elif message.flush_context is not None:
            flushes.flush()
        elif message.update_config is not None:
            await self._update(context, updated(create, message.update_config))
        else:
            flushes.stop()
            if message.close_context is None or context.is_closing:
                context.cancel()  # a second close while speech is still sent drops the rest
            else:
                context.close()

    async def _create(self, context_id: str, create: Create) -> None:
        if context_id in self._contexts:
            raise _fault("this context is open already", ALREADY_EXISTS, context_id)
        if len(self._contexts) >= MAX_CONTEXTS:
            # Clients open one for each turn in advance, and do not close unused ones.
            forgotten = self._contexts.find_idle()
            if forgotten is None:
                text = f"a connection has at most {MAX_CONTEXTS} contexts that speak"
                raise _fault(text, RESOURCE_EXHAUSTED, context_id)
            forgotten.cancel()
        voice = await self._voice(create, context_id)
        wire = InworldWire(context_id, create)
        context = SpeakingContext(context_id, voice, wire, self._session.send_speech)
        self._contexts.open(context)
        flushes = AutoFlush(context, create.flushing, voice.voice.voice.language)
        self._open[context_id] = create, flushes
        made = description(create, voice.voice.model.id)
        await self._session.send(context_event(context_id, "contextCreated", made))
        self._contexts.start(context)

    async def _update(self, context: SpeakingContext, create: Create) -> None:
        context_id = context.context_id
        voice = await self._voice(create, context_id)
        context.change_voice(voice, InworldWire(context_id, create))
        _, flushes = self._open[context_id]
        flushes.stop()
        flushes.change(create.flushing, voice.voice.voice.language)
        self._open[context_id] = create, flushes
        made = description(create, voice.voice.model.id)
        await self._session.send(context_event(context_id, "contextUpdated", made))

    async def _voice(self, create: Create, context_id: str) -> ContextVoice:
        workspace_id, payer = self._session.principal.workspace_id, self._session.payer
        try:
            return await open_voice(create, self._synthesis, workspace_id, payer)
        except CODED as error:
            answer = to_api_error(error)
            raise _fault(answer.message, code_of(answer.status), context_id) from None

    def _on_closed(self, context_id: str) -> None:
        _, flushes = self._open.pop(context_id)
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
