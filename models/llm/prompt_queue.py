"""Queue of long prompts, for an engine that processes prompts in batches in slot order."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from models.fairness.slots import FairSlots
from models.llm.base import GenerationRequest

# About 250 tokens: 2 s on two cores, during which no other prompt would begin and no other stream
# get more than a token per batch.
LONG_CHARS = 1000
NEW_S = 2.0  # how long a stream of another tenant counts as new, after its prompt
# A long prompt pauses for other tenants: for an older stream as long as it and the cancelled long
# prompts before it worked, for a new stream PAUSES times as long. Without pauses for new streams,
# clients that left after 2 s kept another's chat waiting for 18 s. Without pauses for older ones,
# each token of a chat waited for a batch of 4 s on busy cores.
PAUSES = 2.0
MOST_OWED_S = 10.0
_POLL_S = 0.02


class PromptQueue:
    """Queue that processes long prompts one at a time, with tenants in turn. Long prompts pause
    between two batches while there is a stream of another tenant. Without the queue, eight prompts
    of 870 tokens of one tenant kept the next tenant waiting for a minute."""

    def __init__(self) -> None:
        self._slots = FairSlots(1)
        self._streams: set[LongPrompt] = set()
        self._owed_s = 0.0  # pauses that long prompts owe to the streams of other tenants

    @asynccontextmanager
    async def stream(self, request: GenerationRequest) -> AsyncIterator["LongPrompt"]:
        """Registers a stream while it runs; a long prompt first waits for its turn."""
        is_long = sum(len(message.content) for message in request.messages) > LONG_CHARS
        async with AsyncExitStack() as places:
            if is_long:
                await places.enter_async_context(self._slots.slot(request.owner))
                await self.pause(request.owner)
            prompt = LongPrompt(self, request.owner, places if is_long else None)
            self._streams.add(prompt)
            try:
                yield prompt
            finally:
                prompt.note_work()
                self._streams.remove(prompt)

    def owe(self, worked_s: float) -> None:
        """Records work of a long prompt, which earns others a pause; in any thread."""
        self._owed_s = min(self._owed_s + PAUSES * worked_s, MOST_OWED_S)

    def owes(self, owner: str) -> bool:
        """Whether the owner owes a pause to a stream of another tenant; in any thread."""
        return self._owed_s > 0 and any(stream.owner != owner for stream in list(self._streams))

    async def pause(self, owner: str) -> None:
        """Waits for the streams of other tenants."""
        while self.owes(owner):
            began = time.monotonic()
            await asyncio.sleep(_POLL_S)
            since = began - NEW_S
            is_new = any(
                stream.owner != owner and stream.processed_at > since for stream in self._streams
            )
            self._owed_s -= (time.monotonic() - began) * (1.0 if is_new else PAUSES)
        self._owed_s = 0.0


class LongPrompt:
    """Prompt of one stream; a short prompt never pauses."""

    def __init__(self, queue: PromptQueue, owner: str, places: AsyncExitStack | None) -> None:
        self.owner = owner
        self.processed_at = math.inf  # time (time.monotonic); infinite until then
        self.is_paused = False
        self._queue = queue
        self._places = places  # held while a long prompt is processed
        self._works_since = time.monotonic()

    def pauses(self) -> bool:
        """Whether to stop after this batch, and continue after `pause`; in any thread."""
        self.note_work()
        self.is_paused = self._places is not None and self._queue.owes(self.owner)
        return self.is_paused

    async def pause(self) -> None:
        """Waits for the streams of other tenants."""
        self.is_paused = False
        await self._queue.pause(self.owner)
        self._works_since = time.monotonic()

    async def finish(self) -> None:
        """Marks the prompt as processed, so that the next long one may begin."""
        if self.processed_at < math.inf:
            return
        self.note_work()
        self.processed_at = time.monotonic()
        places, self._places = self._places, None
        if places is not None:
            await places.aclose()

    def note_work(self) -> None:
        """Records the work since the last call, at the end of a batch or of the prompt."""
        if self._places is not None:
            now = time.monotonic()
            self._queue.owe(now - self._works_since)
            self._works_since = now
