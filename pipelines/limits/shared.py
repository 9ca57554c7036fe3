"""Limits that several processes share through a store, with a fallback while it is lost."""

import asyncio
import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pipelines.limits.base import WINDOW_S, Lease, RateWindow
from pipelines.limits.local import Counted, Hit, Tables
from pipelines.tasks import TaskSet, within_deadline
from telemetry import metrics

logger = logging.getLogger(__name__)

RENEW_S = 10.0
PROBE_S = 1.0
PROBE = Hit("probe", 1 << 40, window_s=1)
LOCAL = "twin"  # what the metrics call the tables of this process


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
        """Renews the registration of this process, and its leases: members by key."""
        ...

    async def release(self, key: str, member: str) -> None: ...

    async def close(self) -> None: ...


class SharedLimits:
    """The RateLimiter and the Leases of a process.

    Hits that come while a question is under way wait and go together as the next one. A store that
    fails several times in a row is not asked again until a probe succeeds; meanwhile the tables of
    this process decide, with its share of each limit. Without a store they always decide.
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
        self._tasks = TaskSet()
        self._held: dict[str, set[str]] = defaultdict(set)
        self._count = 0

    @property
    def degraded(self) -> bool:
        """Whether the tables of this process decide because the store is lost."""
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
        backend = LOCAL if self._store is None else self._store.backend
        window = self._tables.windows.hit(hit) if self._store is None else self._store.here(hit)
        if window is None:
            window = await self._ask(hit)
        if window is None:
            backend, window = LOCAL, self._decide_locally(hit)
        _decided(backend, window.allowed, time.perf_counter() - began)
        return window

    def start(self) -> None:
        """Makes this process known to the others, which share the limits with it from then on."""
        if self._store is not None:
            self._keep_renewing()

    async def acquire(self, key: str, limit: int) -> Lease | None:
        """See Leases."""
        member = secrets.token_hex(8)
        free: bool | None = None
        if self._store is not None and not self._degraded:
            self._keep_renewing()
            try:
                free = await self._ask_store(self._store.acquire(key, member, limit))
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
            return  # the store's copy is not renewed, so it expires
        try:
            await self._ask_store(self._store.release(key, member))
        except StoreLost as error:
            self._failed(error)

    async def close(self) -> None:
        """Ends the background tasks."""
        await self._tasks.close()
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
            self._asking = self._tasks.start(self._ask_all(), "count hits", detached=True)
        try:
            return await future
        except StoreLost:
            return None

    async def _ask_all(self) -> None:
        assert self._store is not None
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                windows = await self._ask_store(self._store.hits([hit for hit, _ in batch]))
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
        """Hits that came meanwhile have waited too: they do not wait for a second failure."""
        batch, self._waiting = batch + self._waiting, []
        for _, future in batch:
            if not future.done():
                future.set_exception(StoreLost())

    def _learn(self, hit: Hit, window: RateWindow) -> None:
        """So that the local tables go on from where the store was lost."""
        if window.remaining < hit.limit:
            own_limit = self._share(hit.limit)
            used = own_limit - window.remaining * own_limit // hit.limit
            self._tables.windows.learn(Counted(hit.key, used, window.left_s, window.reset_at))

    def _decide_locally(self, hit: Hit) -> RateWindow:
        window = self._tables.windows.hit(replace(hit, limit=self._share(hit.limit)))
        return replace(window, limit=hit.limit)

    def _share(self, limit: int) -> int:
        """What this process may allow when it cannot ask what the others do."""
        return max(1, limit // self._store.gateways) if self._store is not None else limit

    async def _ask_store(
        self, question: Coroutine[Any, Any, T], timeout_s: float | None = None
    ) -> T:
        """Raises StoreLost for every failure: a broken store must not fail a request."""
        try:
            return await within_deadline(question, timeout_s or self._timeout_s)
        except StoreLost:
            raise
        except TimeoutError:
            raise StoreLost("timeout") from None
        except Exception as error:  # an unforeseen one of a client library, too
            logger.exception("limits_failed")
            raise StoreLost(type(error).__name__) from None

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= self._allowed_failures and not self._degraded:
            self._degraded = True
            metrics.limiter_degraded.set(1)
            logger.warning("limits_degraded", extra={"error": str(error)})
            self._tasks.start(self._probe(), "probe limits", detached=True)

    async def _probe(self) -> None:
        """No request waits for it."""
        assert self._store is not None
        while True:
            await asyncio.sleep(PROBE_S)
            try:
                await self._ask_store(self._store.hits([PROBE]))
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
            self._renewing = self._tasks.start(self._renew_forever(), "renew leases", detached=True)

    async def _renew_forever(self) -> None:
        while True:
            if not self._degraded:
                await self._renew()
            await asyncio.sleep(RENEW_S)

    async def _renew(self) -> None:
        assert self._store is not None
        held = {key: list(members) for key, members in self._held.items()}
        try:
            await self._ask_store(self._store.renew(held), RENEW_S)
            for key, members in held.items():  # released meanwhile, and maybe added again
                for member in members:
                    if member not in self._held.get(key, ()):
                        await self._ask_store(self._store.release(key, member))
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
