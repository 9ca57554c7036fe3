"""Contexts of speech on one socket, in any dialect, with automatic flushes of their buffers where
clients do not flush each sentence."""

import asyncio
from dataclasses import dataclass

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
QUIET_S = 0.5  # pause after part of a sentence in automatic mode; no language model pauses as long
DEFAULT_DELAY_MS = 3000
DEFAULT_THRESHOLD = 1000  # characters


@dataclass(frozen=True, slots=True)
class FlushRules:
    """When the buffer is spoken without a flush of the client."""

    sentences: bool = True  # each as soon as it is complete
    # Messages may end within words: a sentence is complete when a space follows its full stop.
    # Otherwise each message is a sentence or phrase, of which no more is awaited.
    splits_words: bool = True
    delay_s: float = DEFAULT_DELAY_MS / 1000
    most_characters: int = DEFAULT_THRESHOLD


class AutoFlush:
    """Flushes the buffer of one context automatically.

    After a number of characters or a maximum delay, and whole sentences at once where the rules say
    so.
    """

    def __init__(self, context: SpeakingContext, rules: FlushRules, language: str) -> None:
        """`language` is that of the voice."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._oldest: asyncio.TimerHandle | None = None  # since the buffer is not empty
        self._quiet: asyncio.TimerHandle | None = None  # since the last text
        self.change(rules, language)

    def change(self, rules: FlushRules, language: str) -> None:
        """Sets the rules and the language of the text that follows."""
        self._rules, self._language = rules, language

    def added(self) -> None:
        """Call it after text was added to the buffer."""
        text = self._context.buffered
        if is_ssml(text):  # spoken as a whole
            end = text.find(SSML_END)
            self._context.flush_automatically(0 if end < 0 else end + len(SSML_END))
            self.stop()
            return
        sure = self._rules.splits_words
        ready = finished(text, self._language, sure=sure) if self._rules.sentences else 0
        if len(text) - ready >= self._rules.most_characters:
            ready = text.rfind(" ") + 1 or len(text)
        self._context.flush_automatically(ready)
        self._watch(fresh=ready > 0)

    def flush(self) -> None:
        """Flushes all of it at once; with too many flushes queued it joins their text."""
        self.stop()
        if self._context.is_closing:
            return
        if self._context.is_crowded:
            self._context.flush_automatically(len(self._context.buffered))
        else:
            self._context.flush()

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
            self._oldest = self._loop.call_later(self._rules.delay_s, self._speak_all)
        if self._rules.sentences and not self._rules.splits_words:
            if self._quiet is not None:
                self._quiet.cancel()
            self._quiet = self._loop.call_later(QUIET_S, self._speak_all)

    def _speak_all(self) -> None:
        self.stop()
        self._context.flush_automatically(len(self._context.buffered))


class ContextsConversation(Conversation):
    """A dialect's subclass reads its messages, and opens contexts for them. The socket stays open
    when its last context was closed."""

    def __init__(self, session: SocketSession, services: Services) -> None:
        self.session = session
        self.synthesis = services.speech.synthesis
        self.contexts = OpenContexts(session.spawn, self.on_closed)
        self.flushes: dict[str, AutoFlush] = {}  # of the open contexts

    @property
    def is_busy(self) -> bool:
        return self.contexts.is_speaking

    def open(
        self, context_id: str, stream: SpeechStream, wire: ContextWire, rules: FlushRules
    ) -> SpeakingContext:
        """A context that accepts text; `self.contexts.start` makes it speak, after the client was
        informed."""
        context = SpeakingContext(context_id, stream, wire, self.session.send_speech)
        self.contexts.open(context)
        self.flushes[context_id] = AutoFlush(context, rules, stream.voice.language)
        return context

    def make_room(self) -> None:
        """For another context: clients open some in advance, and do not close unused ones. Raises
        ContextFault where all of them speak."""
        if len(self.contexts) < MAX_CONTEXTS:
            return
        forgotten = self.contexts.find_idle()
        if forgotten is None:
            raise ContextFault(f"a connection has at most {MAX_CONTEXTS} contexts that speak")
        forgotten.cancel()

    def on_closed(self, context_id: str) -> None:
        self.flushes.pop(context_id).stop()

    async def closed(self) -> None:
        for flushes in self.flushes.values():
            flushes.stop()
