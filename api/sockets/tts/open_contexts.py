"""The contexts of one socket, whichever protocol it speaks."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from api.native.speech.paid_speech import PaidSynthesis
from api.sockets.kernel.session import SocketSession
from api.sockets.tts.context import ContextWire, SpeakingContext
from api.sockets.tts.voice import ContextVoice
from pipelines.audio.encode.encoder import AudioEncoder
from pipelines.billing.billing import IdempotentOperation
from pipelines.errors import VoiceNotFound
from pipelines.tts.pipeline import SpeechPipeline, SpeechRequest
from pipelines.tts.voice_selection import OfferedVoice

CONTEXTS = 5  # open at once on one socket
REMEMBERED = 100  # ids of closed contexts, so that errors can name them


@dataclass(frozen=True, slots=True)
class ContextStyle:
    """How a context speaks."""

    speaking_rate: float = 1.0
    pitch_semitones: float = 0.0
    stability: float = 1.0
    boost_volume: bool = False
    timings: bool = False


async def offered_voice(pipeline: SpeechPipeline, workspace_id: int, name: str) -> OfferedVoice:
    """The voice of that id, or else of that name, as other services allow.

    Raises EngineError, PipelineError or DatabaseError.
    """
    try:
        found = await pipeline.voice(name, None, workspace_id)
    except VoiceNotFound as error:
        found = None
        with suppress(VoiceNotFound):
            found = await pipeline.voice(None, name, workspace_id)
        if found is None:
            raise error from None
    assert found is not None, "a name was given"
    return found


def context_voice(
    synthesis: PaidSynthesis,
    workspace_id: int,
    offered: OfferedVoice,
    style: ContextStyle,
    make_encoder: Callable[[], AudioEncoder],
    *,
    slow_encoder: bool,
    operation: IdempotentOperation | None = None,
) -> ContextVoice:
    """A voice for one context, which the workspace pays for."""
    voice_id = offered.voice.voice_id
    request = SpeechRequest(
        text="",
        voice_id=voice_id,
        speed=style.speaking_rate,
        pitch=2 ** (style.pitch_semitones / 12),
        enhance=False,  # the engine's own level, unless boost_volume asks for another
        stability=style.stability,
        timings=style.timings,
        workspace_id=workspace_id,
    )
    return ContextVoice(
        synthesis.pipeline,
        request,
        make_encoder,
        slow_encoder=slow_encoder,
        boost_volume=style.boost_volume,
        pay=partial(synthesis.pay, workspace_id, operation, voice_id=voice_id),
    )


class OpenContexts:
    """Up to five contexts, each with a task of the session that speaks."""

    def __init__(self, session: SocketSession, ended: Callable[[str], None]) -> None:
        """`ended` is called with the id of each context that was closed."""
        self.closed: deque[str] = deque(maxlen=REMEMBERED)
        self._session = session
        self._ended = ended
        self._open: dict[str, SpeakingContext] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._open

    def find(self, context_id: str | None) -> SpeakingContext | None:
        """The context of that id; without one the only context that is open."""
        if context_id is not None:
            return self._open.get(context_id)
        return next(iter(self._open.values())) if len(self._open) == 1 else None

    def find_idle(self) -> SpeakingContext | None:
        """The oldest one that has nothing to speak."""
        return next((context for context in self._open.values() if context.idle), None)

    def open(self, context_id: str, voice: ContextVoice, wire: ContextWire) -> SpeakingContext:
        """A context that takes text; it speaks from `start` on."""
        context = SpeakingContext(self._session, context_id, voice, wire)
        self._open[context_id] = context
        return context

    def start(self, context: SpeakingContext) -> None:
        """Once the client was told of it."""
        self._session.spawn(self._run(context), f"context {context.context_id}")

    def clear(self) -> None:
        """Forgets them all; the session has ended their tasks."""
        self._open.clear()

    async def _run(self, context: SpeakingContext) -> None:
        await context.run()
        del self._open[context.context_id]
        self.closed.append(context.context_id)
        self._ended(context.context_id)
