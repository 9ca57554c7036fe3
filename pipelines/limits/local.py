"""Windows and leases counted in one process: plain data, and never a wait."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pipelines.limits.base import WINDOW_S, RateWindow

LEASE_S = 30.0  # a holder that died frees its places after this
MAX_WINDOWS = 200_000  # addresses can be made up; the oldest windows go first
SWEEP_S = 10.0


@dataclass(frozen=True, slots=True)
class Hit:
    """One question to a window; see RateLimiter.hit."""

    key: str
    limit: int
    window_s: int = WINDOW_S
    cost: int = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """A window as it crosses processes, whose monotonic clocks differ."""

    key: str
    used: int
    left_s: float
    reset_at: int


@dataclass(slots=True)
class _Window:
    used: int
    ends: float  # monotonic, so that a clock that is set changes no limit
    reset_at: int  # for people, fixed when the window began


class Windows:
    """Fixed windows, each anchored at its first hit."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._windows: dict[str, _Window] = {}
        self._sweep_at = 0.0

    def __len__(self) -> int:
        return len(self._windows)

    def hit(self, hit: Hit) -> RateWindow:
        """Decides at once. What is refused is not counted."""
        now = self._clock()
        window = self._windows.get(hit.key)
        if window is None or window.ends <= now:
            if now >= self._sweep_at:
                self._sweep(now)
            reset_at = math.ceil(self._wall() + hit.window_s)
            window = _Window(0, now + hit.window_s, reset_at)
            if hit.cost > 0:
                self._put(hit.key, window)
        allowed = window.used + hit.cost <= hit.limit
        if allowed:
            window.used = max(0, window.used + hit.cost)
        remaining = max(0, hit.limit - window.used)
        return RateWindow(allowed, hit.limit, remaining, window.reset_at, window.ends - now)

    def learn(self, counted: Counted) -> None:
        """Takes over what another process has counted; it never forgets a hit of its own."""
        ends = self._clock() + counted.left_s
        window = self._windows.get(counted.key)
        if window is None or window.ends <= self._clock():
            self._put(counted.key, _Window(counted.used, ends, counted.reset_at))
        else:
            window.used = max(window.used, counted.used)
            window.ends, window.reset_at = ends, counted.reset_at

    def _put(self, key: str, window: _Window) -> None:
        self._windows.pop(key, None)  # so that the order of the dict is that of the beginnings
        if len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[key] = window

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + SWEEP_S
        for key in [key for key, window in self._windows.items() if window.ends <= now]:
            del self._windows[key]


class LeaseTable:
    """Who holds a place under each key, and until when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, float]] = {}  # key -> member -> monotonic seconds

    def acquire(self, key: str, member: str, limit: int) -> bool:
        """Whether a place was free, or is the member's already."""
        members = self._live(key)
        if member not in members and len(members) >= limit:
            return False
        self._until.setdefault(key, members)[member] = self._clock() + LEASE_S
        return True

    def renew(self, key: str, members: Iterable[str]) -> None:
        """Also of members that are not known: who renews has held its place all the time."""
        until = self._clock() + LEASE_S
        self._until.setdefault(key, {}).update(dict.fromkeys(members, until))

    def release(self, key: str, member: str) -> None:
        members = self._until.get(key, {})
        members.pop(member, None)
        if not members:
            self._until.pop(key, None)

    def sweep(self) -> None:
        """Drops what has expired; of a key that is asked for, that happens by itself."""
        for key in list(self._until):
            if not self._live(key):
                del self._until[key]

    def _live(self, key: str) -> dict[str, float]:
        members = self._until.get(key, {})
        now = self._clock()
        for member in [member for member, until in members.items() if until <= now]:
            del members[member]
        return members


@dataclass(slots=True)
class Tables:
    """All that one process counts."""

    windows: Windows = field(default_factory=Windows)
    leases: LeaseTable = field(default_factory=LeaseTable)
