"""Shares of a capacity: how much of it one owner may hold while others want it, too."""

import sys
from collections import Counter
from collections.abc import KeysView
from dataclasses import dataclass
from typing import TypeAlias

Owner: TypeAlias = int | str  # never None: `TurnOrder.next` returns it when no owner has a turn

CONTENDED_S = 60.0  # time after its last request for which an owner counts as contending
UNBOUNDED = sys.maxsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of a capacity that one owner may hold, at most `ceiling` places.

    Work that soon ends by itself leaves the last free place to owners that hold none
    (`keeps_last`). For work whose end a client or a receiver decides, `spares` places stay free for
    each place that its owner holds (dynamic thresholds for shared buffers, Choudhury and Hahne
    1998): n such owners leave 1 / (1 + n / spares) of all places free."""

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


class WorkspaceShares:
    """What each workspace holds of a capacity, and whether it may take more.

    A workspace may take up to half of the capacity, if the sum of what all hold leaves room. The
    sum counts a workspace up to a half, since it may have taken more while it was alone, or up to
    a quarter if the requesting workspace would hold no more than that, so that two flooding
    workspaces do not keep a third out. In all, one and a half times the capacity may be held."""

    def __init__(self) -> None:
        self._held: Counter[int] = Counter()  # only workspaces that hold something

    @property
    def holders(self) -> KeysView[int]:
        return self._held.keys()

    def may_take(
        self, workspace_id: int, amount: int, capacity: int, *, for_newcomers: int = 0
    ) -> bool:
        """Whether the workspace may take `amount` more. Newcomers, workspaces that hold nothing,
        may use `for_newcomers` too."""
        half, quarter = max(1, capacity // 2), max(1, capacity // 4)
        if not self._held[workspace_id]:
            capacity += for_newcomers
        own = self._held[workspace_id] + amount
        most_counted = quarter if own <= quarter else half
        of_all = amount + sum(min(held, most_counted) for held in self._held.values())
        return own <= half and of_all <= capacity

    def take(self, workspace_id: int, amount: int) -> None:
        self._held[workspace_id] += amount

    def give_back(self, workspace_id: int, amount: int) -> None:
        self._held[workspace_id] -= amount
        if not self._held[workspace_id]:
            del self._held[workspace_id]
