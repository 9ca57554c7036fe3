"""Fair queuing: owners get slots in turn, by the slots and the time that they have used."""

import asyncio
import heapq
import math
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import TypeAlias, TypeVar

from pipelines.errors import Overloaded

Clock = Callable[[], float]
Owner: TypeAlias = int | str  # never None: `FairShares.next` returns it when no owner has a turn

K = TypeVar("K", bound=Owner)

REMEMBERED = 1024  # entries without use before they are dropped together
COMPARED = 32  # owners with the longest queue, when one of them is refused
CONTENDED_S = 60.0  # for which an owner that came counts as one that may come again


class RecentOwners:
    """The last two owners that came, and when: two are enough to know whether there are others."""

    def __init__(self) -> None:
        self._came: dict[Owner, float] = {}  # the latest last

    def add(self, owner: Owner, now: float) -> None:
        self._came.pop(owner, None)
        self._came[owner] = now
        if len(self._came) > 2:
            del self._came[next(iter(self._came))]

    def within(self, seconds: float, now: float) -> set[Owner]:
        """Those of them that came in the last `seconds`."""
        return {one for one, came in self._came.items() if now - came < seconds}


class FairShares:
    """Whose turn it is of several owners (tenants) that use the same slots.

    A free slot goes to the owner with the fewest slots, then to the one that has used them for the
    shortest time (start-time fair queuing, Goyal, Vin and Cheng 1996), so that a backlog of one
    owner delays another's work by no more than one piece of it. While owners contend, the last free
    slot never goes to one that has a slot, and none gets more than `most` of them.
    """

    def __init__(
        self, *, most: int | None = None, contended_s: float = math.inf, clock: Clock
    ) -> None:
        """Owners contend while two of them have asked within `contended_s`; by default always."""
        self._most = most
        self._contended_s = contended_s
        self._clock = clock
        self._taken: Counter[Owner] = Counter()  # only owners that have slots
        self._used_s: dict[Owner, float] = {}  # of this busy period
        self._most_remembered = REMEMBERED  # in it, until those that are like newcomers are dropped
        self._least_used_s = 0.0  # that of the last turn: a newcomer begins there
        self._recent = RecentOwners()

    @property
    def holders(self) -> Collection[Owner]:
        """The owners that have slots."""
        return self._taken.keys()

    def next(self, owners: Collection[K], free: int, slots: int) -> K | None:
        """The owner whose turn it is; None when none may take one of the `free` slots."""
        ready: Iterable[K] = owners
        if self._contend(owners):
            is_last = free == 1 < slots
            most = slots if self._most is None else self._most
            ready = [
                one
                for one in owners
                if self._taken[one] < most and not (is_last and self._taken[one])
            ]
        return min(ready, key=lambda one: (self._taken[one], self.used_s(one)), default=None)

    def take(self, owner: Owner) -> None:
        self._taken[owner] += 1
        self._least_used_s = self.used_s(owner)
        self._recent.add(owner, self._clock())

    def leave(self, owner: Owner, used_s: float) -> None:
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        self._used_s[owner] = self.used_s(owner) + used_s
        if len(self._used_s) > self._most_remembered:
            least_s = self._least_used_s
            self._used_s = {one: used for one, used in self._used_s.items() if used > least_s}
            self._most_remembered = 2 * len(self._used_s) + REMEMBERED

    def clear(self) -> None:
        """Idle: no owner is ahead of another."""
        self._taken.clear()
        self._used_s.clear()
        self._least_used_s = 0.0

    def _contend(self, owners: Iterable[Owner]) -> bool:
        if math.isinf(self._contended_s):
            return True
        return len(self._recent.within(self._contended_s, self._clock()).union(owners)) > 1

    def used_s(self, owner: Owner) -> float:
        """The seconds of slots that count against the owner."""
        return max(self._used_s.get(owner, 0.0), self._least_used_s)


class FairSlots:
    """A number of slots for work, which owners get in turn (`FairShares`).

    When more than `max_waiting` wait, the newest of the owner with the longest queue is refused
    (longest queue drop, Suter et al. 1998), of several the one that has used the slots for the
    longest time: no owners keep another out. A step takes logarithmic time: 2,000 owners that wait
    took 2 s of the event loop when each turn looked at all of them.
    """

    def __init__(
        self,
        slots: int,
        max_waiting: int,
        refusal: str,
        clock: Clock = time.monotonic,
        *,
        most: int | None = None,
        contended_s: float = math.inf,
    ) -> None:
        """`refusal` is the message of Overloaded; `most` and `contended_s` are of FairShares."""
        self._clock = clock
        self._slots = self._free = slots
        self._max_waiting = max_waiting
        self._refusal = refusal
        self._waiting = _Queues()
        self._shares = FairShares(most=most, contended_s=contended_s, clock=clock)
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
        """The slots that nothing holds; none while something waits."""
        return 0 if self._waiting.number else self._free

    @asynccontextmanager
    async def slot(self, owner: Owner) -> AsyncIterator[None]:
        """Waits for a slot, and holds it for the block. Raises Overloaded."""
        leave = await self.take(owner)
        try:
            yield
        finally:
            leave()

    def asks_to_leave(self, owner: Owner, running_s: float, turn_s: float) -> bool:
        """Whether the owner's work, which has had its slot for `running_s`, is to leave it soon.

        It is when another owner waits without a slot and has used less, by a turn, and no holder
        was asked to leave for that one before.
        """
        if running_s < turn_s or len(self._numbers) <= self._asked:
            return False
        waiting = self._first_without()
        if waiting is None:
            return False
        if self._shares.used_s(owner) + running_s < self._shares.used_s(waiting) + turn_s:
            return False
        self._asked += 1
        return True

    async def take(self, owner: Owner, *, is_first: bool = False) -> Callable[[], None]:
        """Waits for a slot, before all other work of the owner if `is_first`; returns the function
        that gives it back, once. Raises Overloaded."""
        if not self._waiting.number and self._free:  # without a queue, as nearly always
            if self._shares.next((owner,), self._free, self._slots) is not None:
                self._free -= 1
                self._shares.take(owner)
                return self._until_left(owner)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(owner, turn, is_first=is_first)
        self._line_up(owner)
        self._fill()
        if self._waiting.number > self._max_waiting:
            longest = self._waiting.longest(owner, self._shares.used_s)
            refused = self._waiting.newest(longest)
            self._remove(longest, refused)
            if not refused.done():
                refused.set_exception(Overloaded(self._refusal))
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
                self._shares.take(owner)
                self._numbers.pop(owner, None)
                turn.set_result(None)

    def _next(self) -> Owner | None:
        """The owner whose turn it is; None when none may take a slot."""
        if (first := self._first_without()) is not None:
            return first  # comes before all that have a slot
        ready = [one for one in self._shares.holders if one in self._waiting]
        return self._shares.next(ready, self._free, self._slots)

    def _first_without(self) -> Owner | None:
        """The owner with the least use of those that wait and have no slot."""
        while self._without:
            _, number, owner = self._without[0]
            if self._numbers.get(owner) == number:
                return owner
            heapq.heappop(self._without)
        return None

    def _line_up(self, owner: Owner) -> None:
        """To be called when the owner begins to wait, or has given back its last slot."""
        if owner in self._shares.holders or owner in self._numbers or owner not in self._waiting:
            return
        self._number += 1
        self._numbers[owner] = self._number
        heapq.heappush(self._without, (self._shares.used_s(owner), self._number, owner))
        if len(self._without) > 2 * len(self._numbers) + REMEMBERED:
            self._without = [one for one in self._without if self._numbers.get(one[2]) == one[1]]
            heapq.heapify(self._without)

    def _remove(self, owner: Owner, turn: "asyncio.Future[None]") -> None:
        self._waiting.remove(owner, turn)
        if owner not in self._waiting:
            self._numbers.pop(owner, None)

    def _leave(self, owner: Owner, used_s: float) -> None:
        self._free += 1
        self._asked = max(0, self._asked - 1)
        self._shares.leave(owner, used_s)
        self._line_up(owner)
        self._fill()
        if self._free == self._slots:
            self._shares.clear()


class _Queues:
    """The turns that wait, by owner, and the owners by the lengths of their queues."""

    def __init__(self) -> None:
        self.number = 0  # of turns
        self._turns: dict[Owner, OrderedDict[asyncio.Future[None], None]] = {}
        self._owners: dict[int, OrderedDict[Owner, None]] = {}  # by length
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
        """The owner with the longest queue; of several, of which some are compared, the one that
        has used most, and of those the preferred one."""
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
        if self._longest not in self._owners:  # only the longest queue became one shorter
            self._longest -= 1
