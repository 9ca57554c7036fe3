"""Shares of a capacity: how much of it one owner may hold while others want it, too."""

import sys
from dataclasses import dataclass
from typing import TypeAlias

Owner: TypeAlias = int | str  # never None: `TurnOrder.next` returns it when no owner has a turn

CONTENDED_S = 60.0  # for which an owner that came counts as one that may come again
UNBOUNDED = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a capacity that one owner may hold, at most `ceiling` places.

    Work that soon ends by itself leaves the last free place to owners that hold none
    (`keeps_last`). Work that lasts for as long as a client or a receiver likes leaves `spares` free
    places for each that its owner holds (dynamic thresholds for shared buffers, Choudhury and Hahne
    1998): n such owners leave 1 / (1 + n / spares) of all places.
    """

    ceiling: int = UNBOUNDED
    keeps_last: bool = False
    spares: int = 0

    def allows(self, held: int, free: int) -> bool:
        """Whether an owner that holds `held` places may take one of the `free` places."""
        most = self.ceiling
        if self.spares:
            most = min(most, max(1, free // self.spares))
        if self.keeps_last and free == 1:
            most = min(most, 1)
        return free > 0 and held < most


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
        """Owners that came within the last `seconds` seconds."""
        return {owner for owner, came in self._came.items() if now - came < seconds}
