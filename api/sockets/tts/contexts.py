"""Contexts of speech on the sockets of dialects, and automatic flushes of their buffers."""

import asyncio
from dataclasses import dataclass

from api.callers import Caller
from api.services import Services
from api.sockets.kernel.conversation import Conversation
from api.sockets.kernel.session import SocketSession
from pipelines.text.segmentation import finished
from pipelines.tts.reading import is_ssml
from pipelines.tts.session import (
    MAX_CONTEXTS,
    ContextFault,
    ContextWire,
    OpenContexts,
    SpeakingContext,
    SpeechStream,
)

SSML_END = "</speak>"
# Pause after which an unfinished sentence is spoken in automatic mode; language models make shorter
# pauses.
QUIET_S = 0.5
DEFAULT_DELAY_MS = 3000
DEFAULT_THRESHOLD = 1000  # characters


@dataclass(frozen=True, slots=True)
class FlushRules:
    """Rules for when the buffer is spoken without a flush of the client."""

    sentences: bool = True  # speaks each sentence once it is complete
    # Messages may end within words, so a sentence is complete once a space follows its full stop.
    # If False, each message is a whole sentence or phrase.
    splits_words: bool = True
    delay_s: float = DEFAULT_DELAY_MS / 1000  # longest wait of text in the buffer
    max_characters: int = DEFAULT_THRESHOLD  # longest text in the buffer


class AutoFlush:
    """Flushes the buffer of one context automatically, by its `FlushRules`."""

    def __init__(self, context: SpeakingContext, rules: FlushRules, language: str) -> None:
        """Starts with an empty buffer; `language` is the language of the voice."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._oldest: asyncio.TimerHandle | None = None  # runs while the buffer is not empty
        self._quiet: asyncio.TimerHandle | None = None  # runs since the last text
        self.change(rules, language)

    def change(self, rules: FlushRules, language: str) -> None:
        self._rules = rules
        self._language = language

    def added(self) -> None:
        """Flushes the text that the rules allow, after text was added to the buffer."""
        text = self._context.buffered
        if is_ssml(text):  # spoken as a whole
            end = text.find(SSML_END)
            self._context.flush_automatically(0 if end < 0 else end + len(SSML_END))
            self.stop()
            return
        sure = self._rules.splits_words
        ready = finished(text, self._language, sure=sure) if self._rules.sentences else 0
        if len(text) - ready >= self._rules.max_characters:
            ready = text.rfind(" ") + 1 or len(text)
        self._context.flush_automatically(ready)
        self._watch(fresh=ready > 0)

    def flush(self) -> None:
        """Flushes the whole buffer; if too many flushes are queued, appends it to the last one."""
        self.stop()
        if self._context.is_closing:
            return
        if self._context.is_crowded:
            self._context.flush_automatically(len(self._context.buffered))
        else:
            self._context.flush()

    def stop(self) -> None:
        """Stops the timers, since the buffer is empty or the client has disconnected."""
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
            self._oldest = self._loop.call_later(self._rules.delay_s, self._speak_all)
        if self._rules.sentences and not self._rules.splits_words:
            if self._quiet is not None:
                self._quiet.cancel()
            self._quiet = self._loop.call_later(QUIET_S, self._speak_all)

    def _speak_all(self) -> None:
        self.stop()
        self._context.flush_automatically(len(self._context.buffered))


class ContextsConversation(Conversation):
    """Base class of conversations with several contexts; a subclass reads a dialect's messages. The
    socket stays open after its last context has closed."""

    def __init__(self, session: SocketSession, services: Services) -> None:
        self.session = session
        self.caller = Caller(session.principal, session.payer, services.speech)
        self.contexts = OpenContexts(session.spawn, self.on_closed)
        self.flushes: dict[str, AutoFlush] = {}  # by id of the open context

    @property
    def is_busy(self) -> bool:
        return self.contexts.is_speaking

    def open(
        self, context_id: str, stream: SpeechStream, wire: ContextWire, rules: FlushRules
    ) -> SpeakingContext:
        """Opens a context that accepts text. Call `self.contexts.start` to let it speak, after the
        client was informed."""
        context = SpeakingContext(context_id, stream, wire, self.session.send_speech)
        self.contexts.open(context)
        self.flushes[context_id] = AutoFlush(context, rules, stream.voice.language)
        return context

    def make_room(self) -> None:
        """Makes room for another context by closing an idle one, since clients open contexts in
        advance and do not close them. Raises ContextFault if all contexts are speaking."""
        if len(self.contexts) < MAX_CONTEXTS:
            return
        idle = self.contexts.find_idle()
        if idle is None:
            raise ContextFault(f"a connection has at most {MAX_CONTEXTS} contexts that speak")
        idle.cancel()

    def on_closed(self, context_id: str) -> None:
        self.flushes.pop(context_id).stop()

    async def closed(self) -> None:
        for flushes in self.flushes.values():
            flushes.stop()
