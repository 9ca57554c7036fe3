"""Long prompts of an engine that processes prompts in batches, in the order of their slots."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from models.fairness.slots import FairSlots
from models.llm.base import GenerationRequest

# About 250 tokens: 2 s on two cores, in which no other prompt would begin and no other stream get
# more than a token a batch.
LONG_CHARS = 1000
NEW_S = 2.0  # from its prompt on, for which a stream of another tenant is new
# A long prompt pauses for as many times the work of long prompts, its own and of those before it
# that were cancelled, for a new stream, and for as long as that work for one that is older. Clients
# that left after 2 s kept the chat of another waiting for 18 s without the first; without the
# second, on busy cores, each token of a chat waited for a batch of 4 s.
PAUSES = 2.0
MOST_OWED_S = 10.0
_POLL_S = 0.02


class PromptQueue:
    """Long prompts are processed one at a time, of tenants in turn, and pause between two batches
    while there is a stream of another tenant.

    Without it, eight prompts of 870 tokens of one tenant kept the next one waiting for a minute.
    """

    def __init__(self) -> None:
        self._slots = FairSlots(1)
        self._streams: set[LongPrompt] = set()
        self._owed_s = 0.0  # of pauses, by the long prompts to the streams of other tenants

    @asynccontextmanager
    async def stream(self, request: GenerationRequest) -> AsyncIterator["LongPrompt"]:
        """Around a stream; waits for the turn of a long prompt."""
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
        """To be called when a long prompt has worked; in any thread."""
        self._owed_s = min(self._owed_s + PAUSES * worked_s, MOST_OWED_S)

    def owes(self, owner: str) -> bool:
        """Whether a stream of another tenant is owed a pause of the owner's; in any thread."""
        return self._owed_s > 0 and any(one.owner != owner for one in list(self._streams))

    async def pause(self, owner: str) -> None:
        """Waits for the streams of other tenants."""
        while self.owes(owner):
            began = time.monotonic()
            await asyncio.sleep(_POLL_S)
            since = began - NEW_S
            is_new = any(one.owner != owner and one.processed_at > since for one in self._streams)
            self._owed_s -= (time.monotonic() - began) * (1.0 if is_new else PAUSES)
        self._owed_s = 0.0


class LongPrompt:
    """The prompt of one stream; a short one never pauses."""

    def __init__(self, queue: PromptQueue, owner: str, places: AsyncExitStack | None) -> None:
        self.owner = owner
        self.processed_at = math.inf  # by time.monotonic; inf before
        self.is_paused = False
        self._queue = queue
        self._places = places  # of a long one that is processed
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
        """The prompt was processed: the next long one may begin."""
        if self.processed_at < math.inf:
            return
        self.note_work()
        self.processed_at = time.monotonic()
        places, self._places = self._places, None
        if places is not None:
            await places.aclose()

    def note_work(self) -> None:
        """At the end of a batch, and of the work."""
        if self._places is not None:
            now = time.monotonic()
            self._queue.owe(now - self._works_since)
            self._works_since = now
