"""Limits without Redis: one process of the cluster decides, or lets a lone gateway decide alone.

A gateway that is the only one *leads*: it counts in its own tables, which costs no hop. The
arbiter grants that for a few seconds at a time, and takes it back before it lets a second gateway
count, so that at no time two processes decide. A gateway reckons its term from before it asked,
the arbiter from after: when the two cannot speak to each other, the gateway stops first.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pipelines.limits.base import RateWindow
from pipelines.limits.local import Counted, Held, Hit, Tables
from pipelines.limits.shared import StoreLost

logger = logging.getLogger(__name__)

TERM_S = 5.0
ATTEND_S = 1.0  # between two reports of a gateway; one that leads is answered earlier to stop it
ATTEND_TIMEOUT_S = 3.0
RETRY_S = 0.01
HANDOVERS = 20  # times that a gateway asks again who decides


@dataclass(frozen=True, slots=True)
class Orders:
    """What the arbiter tells a gateway."""

    leads: bool
    gateways: int
    windows: list[Counted]  # what was counted before a term begins
    leases: list[Held]


class Arbiter:
    """Decides for all gateways. One in the cluster; each method is called from afar."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tables = Tables()
        self._began = clock()
        self._seen: dict[str, float] = {}  # gateway -> until when it counts as alive
        self._leader: str | None = None
        self._term_ends = 0.0
        self._revoked = asyncio.Event()
        self._free = asyncio.Event()

    async def attend(self, gateway: str, leads: bool) -> Orders:
        """The report of a live gateway.

        One that leads is answered after ATTEND_S, or earlier when its term shall end.
        """
        self._see(gateway)
        if leads and self._leading() == gateway:
            self._term_ends = self._clock() + TERM_S
            if not self._has_others(gateway):
                self._revoked.clear()
                try:
                    async with asyncio.timeout(ATTEND_S):
                        await self._revoked.wait()
                except TimeoutError:
                    pass
            goes_on = self._leading() == gateway and not self._has_others(gateway)
            return Orders(goes_on, len(self._seen), [], [])
        if leads or not self._may_lead(gateway):
            self._revoked.set()
            return Orders(False, len(self._seen), [], [])
        self._leader, self._term_ends = gateway, self._clock() + TERM_S
        tables = self._tables
        return Orders(True, 1, tables.windows.dump(), tables.leases.dump())

    async def hand_over(self, gateway: str, windows: list[Counted], leases: list[Held]) -> None:
        """Ends the term of a gateway, with all that it has counted."""
        for counted in windows:
            self._tables.windows.learn(counted)
        for held in leases:
            self._tables.leases.learn(held)
        self._end_term(gateway)

    async def leave(self, gateway: str) -> None:
        """The gateway stops."""
        self._seen.pop(gateway, None)
        self._end_term(gateway)

    async def hits(self, gateway: str, hits: list[Hit]) -> list[RateWindow] | None:
        """None when the gateway itself decides, or soon will."""
        if await self._is_leader(gateway):
            return None
        return [self._tables.windows.hit(hit) for hit in hits]

    async def acquire(self, gateway: str, key: str, member: str, limit: int) -> bool | None:
        """See `hits`."""
        if await self._is_leader(gateway):
            return None
        return self._tables.leases.acquire(key, member, limit)

    async def renew(self, gateway: str, held: Mapping[str, list[str]]) -> None:
        self._tables.leases.sweep()
        for key, members in held.items():
            self._tables.leases.renew(key, members)

    async def release(self, gateway: str, key: str, member: str) -> None:
        self._tables.leases.release(key, member)

    async def _is_leader(self, gateway: str) -> bool:
        """Waits for the end of another's term, which it calls for."""
        self._see(gateway)
        while (leader := self._leading()) not in (None, gateway):
            self._revoked.set()
            self._free.clear()
            try:
                async with asyncio.timeout(max(0.0, self._term_ends - self._clock())):
                    await self._free.wait()
            except TimeoutError:
                continue  # over by now, unless it was granted again
        return leader is not None

    def _leading(self) -> str | None:
        return self._leader if self._clock() < self._term_ends else None

    def _end_term(self, gateway: str) -> None:
        if self._leader == gateway:
            self._leader = None
            self._free.set()

    def _see(self, gateway: str) -> None:
        now = self._clock()
        self._seen = {name: until for name, until in self._seen.items() if until > now}
        self._seen[gateway] = now + TERM_S

    def _has_others(self, gateway: str) -> bool:
        return any(name != gateway and until > self._clock() for name, until in self._seen.items())

    def _may_lead(self, gateway: str) -> bool:
        """Not before every gateway that an arbiter before this one may have let lead was heard."""
        return (
            self._clock() >= self._began + TERM_S
            and self._leading() in (None, gateway)
            and not self._has_others(gateway)
        )


class Ask(Protocol):
    """Calls a method of the arbiter, wherever it is. Raises StoreLost."""

    def __call__(self, method: str, *arguments: Any) -> Awaitable[Any]: ...


class ArbiterStore:
    """A LimitStore: the gateway's side of the arbiter."""

    backend = "cluster"

    def __init__(
        self, ask: Ask, tables: Tables, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._tables = tables
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._gateways = 1
        self._leads_until = 0.0
        self._has_led = False  # a term began, and what was counted in it was not handed over
        self._following: asyncio.Task[None] | None = None
        # One at a time: a term that is granted must not meet the end of the one before it.
        self._reporting = asyncio.Lock()

    @property
    def gateways(self) -> int:
        return self._gateways

    @property
    def leads(self) -> bool:
        """Whether this gateway decides alone now."""
        return self._clock() < self._leads_until

    def start(self) -> None:
        """Begins to report to the arbiter; without it the arbiter decides each time."""
        self._following = asyncio.create_task(self._follow(), name="attend the arbiter")

    def here(self, hit: Hit) -> RateWindow | None:
        return self._tables.windows.hit(hit) if self.leads else None

    async def hits(self, hits: list[Hit]) -> list[RateWindow]:
        for _ in range(HANDOVERS):
            if self.leads:
                return [self._tables.windows.hit(hit) for hit in hits]
            await self._end_of_term()
            windows: list[RateWindow] | None = await self._ask("hits", self._name, hits)
            if windows is not None:
                return windows
            await asyncio.sleep(RETRY_S)
        raise StoreLost("nobody decides")

    async def acquire(self, key: str, member: str, limit: int) -> bool:
        for _ in range(HANDOVERS):
            if self.leads:
                return self._tables.leases.acquire(key, member, limit)
            await self._end_of_term()
            taken: bool | None = await self._ask("acquire", self._name, key, member, limit)
            if taken is not None:
                return taken
            await asyncio.sleep(RETRY_S)
        raise StoreLost("nobody decides")

    async def renew(self, held: Mapping[str, list[str]]) -> None:
        self._tables.leases.sweep()
        for key, members in held.items():
            self._tables.leases.renew(key, members)
        if not self.leads and held:
            await self._ask("renew", self._name, held)

    async def release(self, key: str, member: str) -> None:
        self._tables.leases.release(key, member)
        if not self.leads:
            await self._ask("release", self._name, key, member)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        try:
            async with asyncio.timeout(1):
                if self._has_led:
                    await self._hand_over()
                await self._ask("leave", self._name)
        except (StoreLost, TimeoutError):
            pass  # its term expires by itself

    async def attend(self) -> None:
        """Reports once, and obeys. Raises StoreLost or TimeoutError."""
        async with self._reporting:
            await self._attend()

    async def _attend(self) -> None:
        asked_at = self._clock()
        async with asyncio.timeout(ATTEND_TIMEOUT_S):
            orders: Orders = await self._ask("attend", self._name, self.leads)
        self._gateways = max(1, orders.gateways)
        if orders.leads:
            for counted in orders.windows:
                self._tables.windows.learn(counted)
            for held in orders.leases:
                self._tables.leases.learn(held)
            self._has_led = True
            self._leads_until = asked_at + TERM_S
        elif self._has_led:
            await self._hand_over()

    async def _end_of_term(self) -> None:
        """The arbiter must know what was counted in a term that ran out before it is asked."""
        if not self._has_led:
            return
        async with self._reporting:
            if self._has_led and not self.leads:
                try:
                    await self._hand_over()
                except TimeoutError:
                    raise StoreLost("nobody takes over") from None

    async def _hand_over(self) -> None:
        self._leads_until = 0.0  # before the tables are read: from here on the arbiter decides
        tables = self._tables
        async with asyncio.timeout(ATTEND_TIMEOUT_S):
            await self._ask("hand_over", self._name, tables.windows.dump(), tables.leases.dump())
        self._has_led = False
        tables.leases.clear()  # the arbiter knows; a later term begins with what it knows then

    async def _follow(self) -> None:
        while True:
            try:
                await self.attend()
            except (StoreLost, TimeoutError) as error:
                logger.warning("arbiter_lost", extra={"error": type(error).__name__})
                await asyncio.sleep(ATTEND_S)
            if not self.leads:
                await asyncio.sleep(ATTEND_S)
