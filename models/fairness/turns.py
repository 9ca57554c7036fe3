"""The order of turns: whose next piece of work begins."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from models.fairness.shares import UNBOUNDED, Owner, RecentOwners, Share

Clock = Callable[[], float]

K = TypeVar("K", bound=Owner)

REMEMBERED = 1024  # useless entries that are kept until they are dropped together


class TurnOrder:
    """The order in which several owners (tenants) get the same slots.

    A free slot goes to the owner with the fewest slots, then to the one that has used them for the
    shortest time (start-time fair queuing, Goyal, Vin and Cheng 1996), so that a backlog of one
    owner delays another's work by no more than one piece of it. While owners contend, the last free
    slot never goes to one that has a slot, and none gets more than `most` slots."""

    def __init__(
        self, *, most: int = UNBOUNDED, contended_s: float = math.inf, clock: Clock
    ) -> None:
        """Create an order. Owners contend while two of them have asked within `contended_s`, by
        default always."""
        self._share = Share(ceiling=most, keeps_last=True)
        self._contended_s = contended_s
        self._clock = clock
        self._taken: Counter[Owner] = Counter()  # only owners that have slots
        self._used_s: dict[Owner, float] = {}  # seconds used in this busy period
        self._most_remembered = REMEMBERED  # size that triggers dropping useless entries
        self._least_used_s = 0.0  # used by the last turn's owner: a newcomer begins there
        self._recent = RecentOwners()

    @property
    def holders(self) -> Collection[Owner]:
        return self._taken.keys()

    def next(self, owners: Collection[K], free: int) -> K | None:
        """Return the owner whose turn it is; None if none may take one of the `free` slots."""
        ready: Iterable[K] = owners
        if self._contend(owners):
            ready = [owner for owner in owners if self._share.allows(self._taken[owner], free)]
        return min(ready, key=lambda owner: (self._taken[owner], self.used_s(owner)), default=None)

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
            self._used_s = {owner: used for owner, used in self._used_s.items() if used > least_s}
            self._most_remembered = 2 * len(self._used_s) + REMEMBERED

    def clear(self) -> None:
        """Reset the order while no work runs: no owner is then ahead of another."""
        self._taken.clear()
        self._used_s.clear()
        self._least_used_s = 0.0

    def used_s(self, owner: Owner) -> float:
        """Return the seconds of slots that count against the owner."""
        return max(self._used_s.get(owner, 0.0), self._least_used_s)

    def _contend(self, owners: Iterable[Owner]) -> bool:
        if math.isinf(self._contended_s):
            return True
        return len(self._recent.within(self._contended_s, self._clock()).union(owners)) > 1
