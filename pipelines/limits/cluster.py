"""Limits without Redis: one process of the cluster counts for all gateways. A call to it takes a
millisecond, so a sole gateway decides windows of a minute by itself, and reports its hits to the
counter afterwards. A gateway counts as sole after SETTLE_S: by then every other gateway has renewed
its leases with the counter, and windows shared with others have ended."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
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

SETTLE_S = 75.0
CLOSE_TIMEOUT_S = 1.0


class RequestCounter:
    """Counter for all gateways, one in the cluster; they call its methods remotely."""

    def __init__(self) -> None:
        self._windows = Windows()
        self._leases = LeaseTable()
        self._gateways: dict[str, float] = {}  # time until which each counts as alive
        self._changed_at = time.monotonic()  # time of the last change of the gateways

    async def hits(self, gateway: str, hits: list[Hit]) -> tuple[list[RateWindow], bool]:
        """Counts hits; returns a window for each, and whether the gateway is the only one."""
        self._note_alive(gateway)
        is_alone = len(self._gateways) == 1 and time.monotonic() - self._changed_at >= SETTLE_S
        return [self._windows.hit(hit) for hit in hits], is_alone

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

    async def leave(self, gateway: str) -> None:
        self._gateways.pop(gateway, None)
        self._changed_at = time.monotonic()


Ask = Callable[..., Awaitable[Any]]
"""Calls a method of the counter by its name, wherever it runs. Raises StoreLost."""


class ClusterStore(LimitStore):
    """Client of the counter, in a gateway."""

    backend = "cluster"

    def __init__(self, ask: Ask) -> None:
        super().__init__()
        self._ask = ask

    async def hits(self, hits: list[Hit]) -> list[RateWindow]:
        windows: list[RateWindow]
        windows, self.is_alone = await self._ask("hits", self._name, hits)
        return windows

    async def acquire(self, key: str, member: str, limit: int) -> bool:
        taken: bool = await self._ask("acquire", key, member, limit)
        return taken

    async def renew(self, held: Mapping[str, list[str]]) -> None:
        self.gateways = await self._ask("renew", self._name, held)
        self.is_alone = self.is_alone and self.gateways == 1

    async def release(self, key: str, member: str) -> None:
        await self._ask("release", key, member)

    async def close(self) -> None:
        with suppress(StoreLost, TimeoutError):  # the counter drops it after LEASE_S
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._ask("leave", self._name)
