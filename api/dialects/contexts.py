"""Contexts of speech on one socket, in any dialect."""

from api.services import Services
from api.sockets.kernel.conversation import Conversation
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.auto_flush import AutoFlush, FlushRules
from pipelines.tts.session import (
    MAX_CONTEXTS,
    ContextFault,
    ContextVoice,
    ContextWire,
    OpenContexts,
    SpeakingContext,
)


class ContextsConversation(Conversation):
    """A dialect's subclass reads its messages, and opens contexts for them. The socket stays open
    when its last context was closed."""

    def __init__(self, session: SocketSession, services: Services) -> None:
        self.session = session
        self.synthesis = services.speech.synthesis
        self.contexts = OpenContexts(session.spawn, self.on_closed)
        self.flushes: dict[str, AutoFlush] = {}  # of the open contexts

    def open(
        self, context_id: str, voice: ContextVoice, wire: ContextWire, rules: FlushRules
    ) -> SpeakingContext:
        """A context that accepts text; `self.contexts.start` makes it speak, after the client was
        informed."""
        context = SpeakingContext(context_id, voice, wire, self.session.send_speech)
        self.contexts.open(context)
        self.flushes[context_id] = AutoFlush(context, rules, voice.voice.voice.language)
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
