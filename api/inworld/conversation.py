"""Inworld's text-to-speech socket, over the contexts of `/ws/tts`."""

import asyncio
import uuid

from api.http.errors import CODED, to_api_error
from api.inworld.messages import (
    ABORTED,
    ALREADY_EXISTS,
    DEFAULT_DELAY_MS,
    DEFAULT_THRESHOLD,
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
from api.sockets.tts.events import shown
from pipelines.text.segmentation import finished
from pipelines.tts.reading import is_ssml
from pipelines.tts.session import (
    MAX_CONTEXTS,
    ContextFault,
    ContextVoice,
    OpenContexts,
    SpeakingContext,
)

SSML_END = "</speak>"
QUIET_S = 0.5  # pause after part of a sentence in automatic mode; no language model pauses as long


class AutoFlush:
    """Flushes the buffer of one context automatically.

    Automatic mode speaks whole sentences at once. Every mode flushes the buffer after a number of
    characters or a maximum delay.
    """

    def __init__(self, context: SpeakingContext, create: Create, language: str) -> None:
        """`language` is that of the voice."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._oldest: asyncio.TimerHandle | None = None  # since the buffer is not empty
        self._quiet: asyncio.TimerHandle | None = None  # since the last text
        self.change(create, language)

    def change(self, create: Create, language: str) -> None:
        """Sets the options and the language of the text that follows."""
        self._language = language
        self._auto = create.auto_mode
        # In other strategies each message is a sentence or phrase: no more of it is awaited.
        self._splits_words = create.auto_mode_strategy == "SENTENCE_BOUNDARY"
        self._delay_s = (create.max_buffer_delay_ms or DEFAULT_DELAY_MS) / 1000
        self._max_characters = create.buffer_char_threshold or DEFAULT_THRESHOLD

    def added(self) -> None:
        """Call it after text was added to the buffer."""
        text = self._context.buffered
        if is_ssml(text):  # spoken as a whole
            end = text.find(SSML_END)
            self._context.flush_automatically(0 if end < 0 else end + len(SSML_END))
            self.stop()
            return
        ready = finished(text, self._language, sure=self._splits_words) if self._auto else 0
        if len(text) - ready >= self._max_characters:
            ready = text.rfind(" ") + 1 or len(text)
        self._context.flush_automatically(ready)
        self._watch(fresh=ready > 0)

    def stop(self) -> None:
        """Call it when the buffer is empty, or the client has disconnected."""
        for timer in (self._oldest, self._quiet):
            if timer is not None:
                timer.cancel()
        self._oldest = self._quiet = None

    def _watch(self, *, fresh: bool) -> None:
        if fresh or not self._context.buffered.strip():
            self.stop()
        if not self._context.buffered.strip():
            return
        if self._oldest is None:
            self._oldest = self._loop.call_later(self._delay_s, self._speak_all)
        if self._auto and not self._splits_words:
            if self._quiet is not None:
                self._quiet.cancel()
            self._quiet = self._loop.call_later(QUIET_S, self._speak_all)

    def _speak_all(self) -> None:
        self.stop()
        self._context.flush_automatically(len(self._context.buffered))


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
                self._flush(context, flushes)
        elif message.flush_context is not None:
            self._flush(context, flushes)
        elif message.update_config is not None:
            await self._update(context, updated(create, message.update_config))
        else:
            flushes.stop()
            if message.close_context is None or context.is_closing:
                context.cancel()  # a second close while speech is still sent drops the rest
            else:
                context.close()

    def _flush(self, context: SpeakingContext, flushes: AutoFlush) -> None:
        flushes.stop()
        if context.is_closing:
            return
        if context.is_crowded:  # it joins the text that is queued already
            context.flush_automatically(len(context.buffered))
        else:
            context.flush()

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
        flushes = AutoFlush(context, create, voice.voice.voice.language)
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
        flushes.change(create, voice.voice.voice.language)
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
