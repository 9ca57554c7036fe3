"""Rate limits and concurrency: windows of requests, and leases of sessions and jobs."""

from dataclasses import dataclass
from typing import Protocol

WINDOW_S = 60


@dataclass(frozen=True, slots=True)
class RateWindow:
    """A fixed window that began with its first request, after the request that asked."""

    allowed: bool
    limit: int
    remaining: int
    reset_at: int  # Unix seconds at which the next window may begin
    left_s: float = 0.0  # until then, by the clock of who counted


class RateLimiter(Protocol):
    """Counts requests; in this process, in one of the cluster, or in Redis."""

    async def hit(
        self, key: str, limit: int, window_s: int = WINDOW_S, cost: int = 1
    ) -> RateWindow:
        """Counts `cost` requests of `key`, unless that would be more than `limit`.

        A `cost` of 0 only asks, and -1 gives one back. Never fails: while the store is lost, a
        local count decides.
        """
        ...


class Lease(Protocol):
    """A place that was taken; it is renewed until it is released, and expires with its holder."""

    async def release(self) -> None:
        """Again does nothing."""
        ...


class Leases(Protocol):
    """Counts what lives: sockets and jobs."""

    async def acquire(self, key: str, limit: int) -> Lease | None:
        """None when `limit` are taken. Never fails."""
        ...
