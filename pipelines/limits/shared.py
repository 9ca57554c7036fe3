"""Limits that several processes share, and what stands in when the place they share is lost."""

import asyncio
import contextvars
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pipelines.limits.base import WINDOW_S, Lease, RateWindow
from pipelines.limits.local import Counted, Hit, Tables
from pipelines.tasks import within_deadline
from telemetry import metrics

logger = logging.getLogger(__name__)

RENEW_S = 10.0
PROBE_S = 1.0
PROBE = Hit("probe", 1 << 40, window_s=1)


T = TypeVar("T")


class StoreLost(Exception):
    """The store did not answer, or refused to."""


class LimitStore(Protocol):
    """Where processes count together. Its coroutines raise StoreLost."""

    backend: str  # for metrics

    @property
    def gateways(self) -> int:
        """How many processes count there, as far as is known; at least 1."""
        ...

    def here(self, hit: Hit) -> RateWindow | None:
        """Decides without a wait where this process may; None where it must ask."""
        ...

    async def hits(self, hits: list[Hit]) -> list[RateWindow]:
        """One answer for each, counted in their order."""
        ...

    async def acquire(self, key: str, member: str, limit: int) -> bool: ...

    async def renew(self, held: Mapping[str, list[str]]) -> None:
        """Says that this process and these leases, members by key, live."""
        ...

    async def release(self, key: str, member: str) -> None: ...

    async def close(self) -> None: ...


class SharedLimits:
    """The RateLimiter and the Leases of a process.

    Hits that come while a question is under way wait and go together as the next one. A store that
    fails several times in a row is not asked again until a probe finds it well; meanwhile this
    process decides by its own tables, with its share of each limit. Without a store it always
    decides by itself.
    """

    def __init__(
        self,
        store: LimitStore | None = None,
        tables: Tables | None = None,
        *,
        timeout_s: float = 0.05,
        failures: int = 5,
    ) -> None:
        self._store = store
        self._tables = tables or Tables()
        self._timeout_s = timeout_s
        self._allowed_failures = failures
        self._failures = 0
        self._degraded = False
        self._waiting: list[tuple[Hit, asyncio.Future[RateWindow]]] = []
        self._asking: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._held: dict[str, set[str]] = defaultdict(set)
        self._count = 0

    @property
    def degraded(self) -> bool:
        """Whether the twin decides because the store is lost."""
        return self._degraded

    @property
    def held(self) -> int:
        """Leases of this process."""
        return self._count

    async def hit(
        self, key: str, limit: int, window_s: int = WINDOW_S, cost: int = 1
    ) -> RateWindow:
        """See RateLimiter."""
        began = time.perf_counter()
        hit = Hit(key, limit, window_s, cost)
        backend = "twin" if self._store is None else self._store.backend
        window = self._tables.windows.hit(hit) if self._store is None else self._store.here(hit)
        if window is None:
            window = await self._ask(hit)
        if window is None:
            backend, window = "twin", self._by_twin(hit)
        _decided(backend, window.allowed, time.perf_counter() - began)
        return window

    async def acquire(self, key: str, limit: int) -> Lease | None:
        """See Leases."""
        member = secrets.token_hex(8)
        free: bool | None = None
        if self._store is not None and not self._degraded:
            self._keep_renewing()
            try:
                free = await self._in_time(self._store.acquire(key, member, limit))
                self._failures = 0
            except StoreLost as error:
                self._failed(error)
        if free is None:  # those of this process are known in any case
            free = len(self._held.get(key, ())) < self._share(limit)
        if not free:
            metrics.leases_refused.inc()
            return None
        self._held[key].add(member)
        self._count += 1
        metrics.leases_live.inc()
        return _HeldLease(self, key, member)

    async def release(self, key: str, member: str) -> None:
        """Gives a place back; one that is not held is left alone."""
        members = self._held.get(key, set())
        if member not in members:
            return
        members.discard(member)
        if not members:
            del self._held[key]
        self._count -= 1
        metrics.leases_live.dec()
        if self._store is None or self._degraded:
            return  # it is not renewed, so it expires
        try:
            await self._in_time(self._store.release(key, member))
        except StoreLost as error:
            self._failed(error)

    async def close(self) -> None:
        """Ends what runs in the background."""
        tasks = [*self._others, *filter(None, (self._asking, self._renewing))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._store is not None:
            await self._store.close()

    async def _ask(self, hit: Hit) -> RateWindow | None:
        """None when the store did not answer in time."""
        if self._degraded:
            return None
        self._keep_renewing()
        future: asyncio.Future[RateWindow] = asyncio.get_running_loop().create_future()
        self._waiting.append((hit, future))
        if self._asking is None or self._asking.done():
            self._asking = _background(self._ask_all(), "count hits")
        try:
            return await future
        except StoreLost:
            return None

    async def _ask_all(self) -> None:
        assert self._store is not None
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                windows = await self._in_time(self._store.hits([hit for hit, _ in batch]))
            except StoreLost as error:
                self._failed(error)
                self._give_up(batch)
                continue
            except asyncio.CancelledError:
                self._give_up(batch)
                raise
            self._failures = 0
            for (hit, future), window in zip(batch, windows, strict=True):
                self._learn(hit, window)
                if not future.done():
                    future.set_result(window)

    def _give_up(self, batch: list[tuple[Hit, asyncio.Future[RateWindow]]]) -> None:
        """Of those who came meanwhile too: they have waited, and need not for a second failure."""
        batch, self._waiting = batch + self._waiting, []
        for _, future in batch:
            if not future.done():
                future.set_exception(StoreLost())

    def _learn(self, hit: Hit, window: RateWindow) -> None:
        """So that the twin goes on where the store was lost."""
        if window.remaining < hit.limit:
            own_limit = self._share(hit.limit)
            used = own_limit - window.remaining * own_limit // hit.limit
            self._tables.windows.learn(Counted(hit.key, used, window.left_s, window.reset_at))

    def _by_twin(self, hit: Hit) -> RateWindow:
        window = self._tables.windows.hit(replace(hit, limit=self._share(hit.limit)))
        return replace(window, limit=hit.limit)

    def _share(self, limit: int) -> int:
        """What this process may allow when it cannot ask what the others do."""
        return max(1, limit // self._store.gateways) if self._store is not None else limit

    async def _in_time(self, question: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Raises StoreLost for every failure: requests go on, whatever the store stumbles over."""
        try:
            return await within_deadline(question, timeout_s or self._timeout_s)
        except StoreLost:
            raise
        except TimeoutError:
            raise StoreLost("timeout") from None
        except Exception as error:
            logger.exception("limits_failed")
            raise StoreLost(type(error).__name__) from None

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= self._allowed_failures and not self._degraded:
            self._degraded = True
            metrics.limiter_degraded.set(1)
            logger.warning("limits_degraded", extra={"error": str(error)})
            task = _background(self._probe(), "probe limits")
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    async def _probe(self) -> None:
        """Nobody waits for it, so a store that hangs costs no request anything."""
        assert self._store is not None
        while True:
            await asyncio.sleep(PROBE_S)
            try:
                await self._in_time(self._store.hits([PROBE]))
                break
            except StoreLost:
                continue
        self._failures = 0
        self._degraded = False
        metrics.limiter_degraded.set(0)
        logger.info("limits_restored")
        await self._renew()  # it may have lost them

    def _keep_renewing(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = _background(self._renew_for_ever(), "renew leases")

    async def _renew_for_ever(self) -> None:
        while True:
            if not self._degraded:
                await self._renew()
            await asyncio.sleep(RENEW_S)

    async def _renew(self) -> None:
        assert self._store is not None
        held = {key: list(members) for key, members in self._held.items()}
        try:
            await self._in_time(self._store.renew(held), RENEW_S)
            for key, members in held.items():  # released meanwhile, and maybe added again
                for member in members:
                    if member not in self._held.get(key, ()):
                        await self._in_time(self._store.release(key, member))
        except StoreLost as error:
            self._failed(error)


class _HeldLease:
    def __init__(self, limits: SharedLimits, key: str, member: str) -> None:
        self._limits = limits
        self._key = key
        self._member = member

    async def release(self) -> None:
        await self._limits.release(self._key, self._member)


def _decided(backend: str, allowed: bool, seconds: float) -> None:
    decision = "allowed" if allowed else "refused"
    metrics.limit_decisions.labels(backend, decision).inc()
    metrics.limit_seconds.labels(backend).observe(seconds)


def _background(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
    """Not in the context of the request that happens to start it."""
    return asyncio.create_task(work, name=name, context=contextvars.Context())
