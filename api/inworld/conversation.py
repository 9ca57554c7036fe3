"""Inworld's text-to-speech socket, over the contexts of `/ws/tts`."""

import uuid

from api.http.errors import CODED, to_api_error
from api.inworld import messages
from api.services import Services
from api.sockets.kernel.conversation import ClientFault, parse_event
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.contexts import ContextsConversation
from api.sockets.tts.events import shown
from pipelines.tts.session import ContextFault, ContextVoice, SpeakingContext


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
            event = parse_event(text)
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
        voice = await self._voice(create, context_id)
        context = self.open(
            context_id, voice, messages.InworldWire(context_id, create), create.flushing
        )
        self._creates[context_id] = create
        made = messages.description(create, voice.voice.model.id)
        await self.session.send(messages.context_event(context_id, "contextCreated", made))
        self.contexts.start(context)

    async def _update(self, context: SpeakingContext, create: messages.Create) -> None:
        context_id = context.context_id
        voice = await self._voice(create, context_id)
        context.change_voice(voice, messages.InworldWire(context_id, create))
        flushes = self.flushes[context_id]
        flushes.stop()
        flushes.change(create.flushing, voice.voice.voice.language)
        self._creates[context_id] = create
        made = messages.description(create, voice.voice.model.id)
        await self.session.send(messages.context_event(context_id, "contextUpdated", made))

    async def _voice(self, create: messages.Create, context_id: str) -> ContextVoice:
        workspace_id, payer = self.session.principal.workspace_id, self.session.payer
        try:
            return await messages.open_voice(create, self.synthesis, workspace_id, payer)
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
