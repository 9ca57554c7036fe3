"""When a context of Inworld's dialect speaks without a flush of the client."""

import asyncio

from api.inworld.messages import DEFAULT_DELAY_MS, DEFAULT_THRESHOLD, Create
from pipelines.text.segmentation import finished
from pipelines.tts.session import SpeakingContext

QUIET_S = 0.5  # after a part of a sentence, in automatic mode: no language model is as slow


class AutoFlush:
    """Watches the buffer of one context.

    In automatic mode whole sentences are spoken at once. In any mode so many characters, or so
    long a wait, are enough.
    """

    def __init__(self, context: SpeakingContext, create: Create, language: str) -> None:
        """`language` is that of the voice."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._oldest: asyncio.TimerHandle | None = None  # since the buffer is not empty
        self._quiet: asyncio.TimerHandle | None = None  # since the last text
        self.change(create, language)

    def change(self, create: Create, language: str) -> None:
        """From the next text on."""
        self._language = language
        self._auto = create.auto_mode
        # Else each message is a sentence or a phrase, so a stop ends it and a rest is not awaited.
        self._in_pieces = create.auto_mode_strategy == "SENTENCE_BOUNDARY"
        self._delay_s = (create.max_buffer_delay_ms or DEFAULT_DELAY_MS) / 1000
        self._most = create.buffer_char_threshold or DEFAULT_THRESHOLD

    def added(self) -> None:
        """After text came into the buffer."""
        text = self._context.buffered
        ready = finished(text, self._language, sure=self._in_pieces) if self._auto else 0
        if len(text) - ready >= self._most:
            ready = text.rfind(" ") + 1 or len(text)
        self._context.flush_automatically(ready)
        self._watch(fresh=ready > 0)

    def stop(self) -> None:
        """Once nothing waits in the buffer, or when the client has left."""
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
        if self._auto and not self._in_pieces:
            if self._quiet is not None:
                self._quiet.cancel()
            self._quiet = self._loop.call_later(QUIET_S, self._speak_all)

    def _speak_all(self) -> None:
        self.stop()
        self._context.flush_automatically(len(self._context.buffered))
