"""Turns in the event loop: few requests at a time work in this process, and addresses take turns.
The loop has no priorities. A sentence of speech passes through it about a hundred times; next to 20
list requests of another workspace, each pass took 35 ms, and the speech 2.3 s instead of 0.15 s."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from models.fairness.slots import FairSlots
from pipelines.errors import Overloaded
from telemetry import metrics

OVERLOADED = "the service is overloaded; try again in a moment"

SLOTS = 3
REST = 5.0  # a slot rests for REST times its turn: short requests use at most half of the loop
LONGEST_S = 0.25  # longest turn: a request that holds it longer is waiting, not working
DELAY_S = 0.5  # delay of a refusal
MOST_DELAYED = 256  # refusals delayed at a time; each holds a place of admission control


class Turns:
    """Turns of one gateway. While models or sockets work, short requests yield to them: a slot
    rests after each request, and errors are delayed, since refused clients often retry at once."""

    def __init__(self, most_waiting: int) -> None:
        self._slots = FairSlots(SLOTS, most_waiting, partial(Overloaded, OVERLOADED))
        self._working = 0
        self._delayed = 0

    async def take(self, address: str) -> Callable[[], None]:
        """Waits for a slot; returns the function that gives it back. Raises Overloaded."""
        began = asyncio.get_running_loop().time()
        leave = await self._slots.take(address)
        metrics.turn_wait_seconds.observe(asyncio.get_running_loop().time() - began)
        return leave

    async def pay(self, address: str, spent_s: float) -> None:
        """Waits for a slot, and lets it rest as if work had taken `spent_s`. Raises Overloaded."""
        give_back = await self._slots.take(address)
        asyncio.get_running_loop().call_later(spent_s * REST if self.yields else 0, give_back)

    @property
    def yields(self) -> bool:
        """Whether short requests yield, because models or sockets are working."""
        return self._working > 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Counts a model's request or a socket as working while the block runs."""
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    async def delay_refusal(self) -> None:
        """Waits for DELAY_S if a model or socket works, and not too many refusals wait already."""
        if not self.yields or self._delayed >= MOST_DELAYED:
            return
        metrics.refusals_delayed.inc()
        self._delayed += 1
        try:
            await asyncio.sleep(DELAY_S)
        finally:
            self._delayed -= 1


class Turn:
    """Turn of one request, which may take it several times. It is held only while this process
    works on the request, not while a body arrives, a model computes or a response is sent."""

    def __init__(self, turns: Turns, address: str) -> None:
        self._turns = turns
        self._address = address
        self._give_back: Callable[[], None] | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._began = 0.0  # time of the event loop

    async def take(self) -> None:
        """Waits for the turn. Raises Overloaded."""
        self._give_back = await self._turns.take(self._address)
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        self._expiry = loop.call_later(LONGEST_S, self.leave)

    async def pay(self, spent_s: float) -> None:
        """Accounts for work that took `spent_s` without the turn. Raises Overloaded."""
        await self._turns.pay(self._address, spent_s)

    def leave(self, *, is_end: bool = False) -> None:
        """Gives the turn back if it is held; `is_end` is for the end of the request."""
        give_back, self._give_back = self._give_back, None
        if give_back is None or self._expiry is None:
            return
        self._expiry.cancel()
        if is_end and self._turns.yields:
            loop = asyncio.get_running_loop()
            loop.call_later((loop.time() - self._began) * REST, give_back)
        else:
            give_back()
