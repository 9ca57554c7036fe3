"""Slots that owners get in turn, with a bounded queue before them."""

import asyncio
import heapq
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice

from models.fairness.shares import UNBOUNDED, Owner
from models.fairness.turns import REMEMBERED, Clock, TurnOrder

COMPARED = 32  # owners compared, of those with equally long queues


class FairSlots:
    """A number of slots for work, which owners get in turn (`TurnOrder`).

    If more than `max_waiting` wait, the newest request of the owner with the longest queue is
    refused (longest queue drop, Suter et al. 1998); of several such owners, the one that has used
    the slots longest. Thus no owner keeps another out. A step takes logarithmic time: 2,000 waiting
    owners took 2 s of the event loop when each turn looked at all of them."""

    def __init__(
        self,
        slots: int,
        max_waiting: int = UNBOUNDED,
        refusal: Callable[[], Exception] = RuntimeError,
        clock: Clock = time.monotonic,
        *,
        most: int = UNBOUNDED,
        contended_s: float = math.inf,
    ) -> None:
        """Create the slots. `refusal` makes the error; `most` and `contended_s` are TurnOrder's."""
        self._clock = clock
        self._slots = self._free = slots
        self._max_waiting = max_waiting
        self._refusal = refusal
        self._waiting = _Queues()
        self._order = TurnOrder(most=most, contended_s=contended_s, clock=clock)
        # The owners that wait and have no slot: a heap of the time used, a number and the owner.
        # Entries with another number than that of their owner are obsolete.
        self._without: list[tuple[float, int, Owner]] = []
        self._numbers: dict[Owner, int] = {}
        self._number = 0
        self._asked = 0  # holders that were asked to leave, and have not yet

    @property
    def taken(self) -> int:
        return self._slots - self._free

    @property
    def free(self) -> int:
        """Return the number of free slots; 0 while something waits."""
        return 0 if self._waiting.number else self._free

    @asynccontextmanager
    async def slot(self, owner: Owner) -> AsyncIterator[None]:
        """Wait for a slot, and hold it for the block. Raises the refusal."""
        leave = await self.take(owner)
        try:
            yield
        finally:
            leave()

    def asks_to_leave(self, owner: Owner, running_s: float, turn_s: float) -> bool:
        """Whether the owner's work, which has had its slot for `running_s`, should leave it soon.
        It should if another owner waits without a slot, has used slots for `turn_s` less, and no
        other holder was asked to leave for that owner."""
        if running_s < turn_s or len(self._numbers) <= self._asked:
            return False
        waiting = self._first_without()
        if waiting is None:
            return False
        if self._order.used_s(owner) + running_s < self._order.used_s(waiting) + turn_s:
            return False
        self._asked += 1
        return True

    async def take(self, owner: Owner, *, is_first: bool = False) -> Callable[[], None]:
        """Wait for a slot, before all other work of the owner if `is_first`. Returns the function
        that gives the slot back, once. Raises the refusal."""
        if not self._waiting.number and self._free:  # usually no request waits
            if self._order.next((owner,), self._free) is not None:
                self._free -= 1
                self._order.take(owner)
                return self._until_left(owner)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(owner, turn, is_first=is_first)
        self._line_up(owner)
        self._fill()
        if self._waiting.number > self._max_waiting:
            longest = self._waiting.longest(owner, self._order.used_s)
            refused = self._waiting.newest(longest)
            self._remove(longest, refused)
            if not refused.done():
                refused.set_exception(self._refusal())
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.has(owner, turn):
                self._remove(owner, turn)
            elif not turn.cancelled() and turn.exception() is None:
                self._leave(owner, 0.0)
            raise
        return self._until_left(owner)

    def _until_left(self, owner: Owner) -> Callable[[], None]:
        began = self._clock()
        return lambda: self._leave(owner, self._clock() - began)

    def _fill(self) -> None:
        while self._free and (owner := self._next()) is not None:
            turn = self._waiting.oldest(owner)
            self._remove(owner, turn)
            if not turn.cancelled():
                self._free -= 1
                self._order.take(owner)
                self._numbers.pop(owner, None)
                turn.set_result(None)

    def _next(self) -> Owner | None:
        if not self._waiting.number:
            return None
        if (first := self._first_without()) is not None:
            return first  # comes before all that have a slot
        ready = [owner for owner in self._order.holders if owner in self._waiting]
        return self._order.next(ready, self._free)

    def _first_without(self) -> Owner | None:
        """Return the owner with the least use among those that wait and have no slot."""
        while self._without:
            _, number, owner = self._without[0]
            if self._numbers.get(owner) == number:
                return owner
            heapq.heappop(self._without)
        return None

    def _line_up(self, owner: Owner) -> None:
        """Enter an owner that begins to wait, or has given back its last slot."""
        if owner in self._order.holders or owner in self._numbers or owner not in self._waiting:
            return
        self._number += 1
        self._numbers[owner] = self._number
        heapq.heappush(self._without, (self._order.used_s(owner), self._number, owner))
        if len(self._without) > 2 * len(self._numbers) + REMEMBERED:
            self._without = [
                entry for entry in self._without if self._numbers.get(entry[2]) == entry[1]
            ]
            heapq.heapify(self._without)

    def _remove(self, owner: Owner, turn: "asyncio.Future[None]") -> None:
        self._waiting.remove(owner, turn)
        if owner not in self._waiting:
            self._numbers.pop(owner, None)

    def _leave(self, owner: Owner, used_s: float) -> None:
        self._free += 1
        self._asked = max(0, self._asked - 1)
        self._order.leave(owner, used_s)
        self._line_up(owner)
        self._fill()
        if self._free == self._slots:
            self._order.clear()


class _Queues:
    """The waiting turns by owner, and the owners by the lengths of their queues."""

    def __init__(self) -> None:
        self.number = 0  # number of turns
        self._turns: dict[Owner, OrderedDict[asyncio.Future[None], None]] = {}
        self._owners: dict[int, OrderedDict[Owner, None]] = {}  # owners by queue length
        self._longest = 0

    def __contains__(self, owner: Owner) -> bool:
        return owner in self._turns

    def has(self, owner: Owner, turn: "asyncio.Future[None]") -> bool:
        return turn in self._turns.get(owner, ())

    def oldest(self, owner: Owner) -> "asyncio.Future[None]":
        return next(iter(self._turns[owner]))

    def newest(self, owner: Owner) -> "asyncio.Future[None]":
        return next(reversed(self._turns[owner]))

    def longest(self, preferred: Owner, used_s: Callable[[Owner], float]) -> Owner:
        """Return the owner with the longest queue. Of several, COMPARED are compared, and the one
        that has used slots the longest is returned, or `preferred` if equal."""
        owners = self._owners[self._longest]
        compared = list(islice(owners, COMPARED))
        return max([preferred, *compared] if preferred in owners else compared, key=used_s)

    def add(self, owner: Owner, turn: "asyncio.Future[None]", *, is_first: bool) -> None:
        turns = self._turns.setdefault(owner, OrderedDict())
        turns[turn] = None
        turns.move_to_end(turn, last=not is_first)
        self._resize(owner, len(turns) - 1, len(turns))

    def remove(self, owner: Owner, turn: "asyncio.Future[None]") -> None:
        turns = self._turns[owner]
        del turns[turn]
        if not turns:
            del self._turns[owner]
        self._resize(owner, len(turns) + 1, len(turns))

    def _resize(self, owner: Owner, before: int, after: int) -> None:
        self.number += after - before
        if after:
            self._owners.setdefault(after, OrderedDict())[owner] = None
        if before:
            del self._owners[before][owner]
            if not self._owners[before]:
                del self._owners[before]
        self._longest = max(self._longest, after)
        if self._longest not in self._owners:  # the only longest queue became shorter by one
            self._longest -= 1
