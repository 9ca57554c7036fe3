"""Limits without Redis: one process of the cluster counts for all gateways.

A call to it takes a millisecond, so it grants a single gateway blocks of hits in advance: half of
the rest of the window, which shrinks as the window fills. The gateway spends its block without a
call. Several gateways make a call for every hit: a block that one of them does not spend would make
another refuse requests below the limit. A gateway counts as single after SETTLE_S, since by then
every other one has renewed its leases with the counter.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipelines.limits.limits import (
    LEASE_S,
    Hit,
    LeaseTable,
    LimitStore,
    RateWindow,
    StoreLost,
    Windows,
)

logger = logging.getLogger(__name__)

BLOCKS = 2  # of the rest of a window; a single gateway makes 7 calls for 60 hits
SETTLE_S = 15.0  # longer than gateways take to renew
CLOSE_TIMEOUT_S = 1.0


class RequestCounter:
    """Counts for all gateways. One in the cluster; gateways call its methods remotely."""

    def __init__(self) -> None:
        self._windows = Windows()
        self._leases = LeaseTable()
        self._gateways: dict[str, float] = {}  # until when each counts as alive
        self._changed_at = time.monotonic()  # when a gateway was last added or removed

    async def hits(self, gateway: str, hits: list[Hit]) -> tuple[list[RateWindow], dict[str, int]]:
        """A window for each hit, and the blocks that are granted beyond them, by key."""
        self._note_alive(gateway)
        is_alone = len(self._gateways) == 1 and time.monotonic() - self._changed_at >= SETTLE_S
        windows = [self._windows.hit(hit) for hit in hits]
        newest = {hit.key: (hit, window) for hit, window in zip(hits, windows, strict=True)}
        blocks = {}
        for key, (hit, window) in newest.items():
            block = window.remaining // BLOCKS if is_alone else 0
            if window.allowed and hit.cost == 1 and block > 0:  # gateways spend them by one
                self._windows.hit(replace(hit, cost=block))
                blocks[key] = block
        return windows, blocks

    async def acquire(self, key: str, member: str, limit: int) -> bool:
        return self._leases.acquire(key, member, limit)

    async def renew(self, gateway: str, held: Mapping[str, list[str]]) -> int:
        """Renews the leases of a live gateway; returns the number of gateways."""
        self._note_alive(gateway)
        self._leases.sweep()
        for key, members in held.items():
            self._leases.renew(key, members)
        return len(self._gateways)

    def _note_alive(self, gateway: str) -> None:
        now = time.monotonic()
        before = self._gateways.keys()
        alive = {name: until for name, until in self._gateways.items() if until > now}
        alive[gateway] = now + LEASE_S
        if alive.keys() != before:
            self._changed_at = now
        self._gateways = alive

    async def release(self, key: str, member: str) -> None:
        self._leases.release(key, member)

    async def leave(self, gateway: str, unspent: list[Hit]) -> None:
        """The gateway stops, and returns the unspent hits of its blocks."""
        self._gateways.pop(gateway, None)
        for hit in unspent:
            self._windows.hit(replace(hit, cost=-hit.cost))


Ask = Callable[..., Awaitable[Any]]
"""Calls a method of the counter by its name, wherever it runs. Raises StoreLost."""


@dataclass(slots=True)
class _Block:
    """Hits that this gateway may allow without a call."""

    hit: Hit
    left: int
    remaining: int  # in the window beyond the block, when it was granted
    reset_at: int
    ends: float  # monotonic seconds


class ClusterStore(LimitStore):
    """The gateway's side of the counter."""

    backend = "cluster"

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask
        self._blocks: dict[str, _Block] = {}

    def here(self, hit: Hit) -> RateWindow | None:
        block = self._blocks.get(hit.key)
        if block is None or hit.cost != 1:
            return None
        now = time.monotonic()
        if block.left == 0 or block.ends <= now or block.hit.limit != hit.limit:
            return None
        block.left -= 1
        remaining = block.remaining + block.left
        return RateWindow(True, hit.limit, remaining, block.reset_at, block.ends - now)

    async def hits(self, hits: list[Hit]) -> list[RateWindow]:
        decided = [self.here(hit) for hit in hits]  # a block may have arrived meanwhile
        open_hits = [hit for hit, window in zip(hits, decided, strict=True) if window is None]
        counted = iter(await self._count(open_hits) if open_hits else ())
        return [next(counted) if window is None else window for window in decided]

    async def _count(self, hits: list[Hit]) -> list[RateWindow]:
        asked_at = time.monotonic()
        windows: list[RateWindow]
        windows, blocks = await self._ask("hits", self._name, hits)
        newest = {hit.key: (hit, window) for hit, window in zip(hits, windows, strict=True)}
        for key, granted in blocks.items():
            hit, window = newest[key]
            left, before = granted, self._blocks.get(key)
            if before is not None and before.reset_at == window.reset_at:
                left += before.left
            ends = asked_at + window.left_s
            remaining = window.remaining - granted
            self._blocks[key] = _Block(hit, left, remaining, window.reset_at, ends)
        return windows

    async def acquire(self, key: str, member: str, limit: int) -> bool:
        taken: bool = await self._ask("acquire", key, member, limit)
        return taken

    async def renew(self, held: Mapping[str, list[str]]) -> None:
        self._drop_ended()
        self.gateways = await self._ask("renew", self._name, held)

    async def release(self, key: str, member: str) -> None:
        await self._ask("release", key, member)

    async def close(self) -> None:
        self._drop_ended()
        unspent = [replace(block.hit, cost=block.left) for block in self._blocks.values()]
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ask("leave", self._name, unspent)
        except (StoreLost, TimeoutError):
            logger.warning("blocks_not_returned")  # they end with their windows

    def _drop_ended(self) -> None:
        now = time.monotonic()
        self._blocks = {
            key: block for key, block in self._blocks.items() if block.left > 0 and block.ends > now
        }
