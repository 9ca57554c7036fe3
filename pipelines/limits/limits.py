"""Rate limits and concurrency limits: windows of requests, and leases, such as those of sockets.
One process counts in its own tables; several count together in a store. While the store is lost,
each process allows its share of each limit."""

import asyncio
import logging
import math
import secrets
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from pipelines.tasks import TaskSet, within_deadline
from telemetry import metrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

WINDOW_S = 60
HOUR_S = 3600
LEASE_S = 30.0  # the leases of a dead process expire after this
RENEW_S = 10.0
PROBE_S = 1.0
REPORT_AFTER_S = 0.2  # delay until the store learns of hits that were decided locally
LOCAL = "local"  # label of this process's own tables in metrics
MAX_WINDOWS = 200_000  # clients can use many addresses; the oldest windows are dropped first
SWEEP_S = 10.0


@dataclass(frozen=True, slots=True)
class Hit:
    """Request to count in the window of `key`, unless that would exceed `limit`. A `cost` of 0 only
    reads the window, and -1 takes one hit back."""

    key: str
    limit: int
    window_s: int = WINDOW_S
    cost: int = 1


PROBE = Hit("probe", 1 << 40, window_s=1)


@dataclass(frozen=True, slots=True)
class RateWindow:
    """State of a fixed window after a hit; the window began with its first request."""

    allowed: bool
    limit: int
    remaining: int
    reset_at: int  # Unix seconds at which the next window may begin
    left_s: float = 0.0  # time until `reset_at`, by the clock of the counting process


@dataclass(slots=True)
class _Window:
    used: int
    ends: float  # monotonic, so that setting the clock changes no limit
    reset_at: int  # shown to clients, fixed when the window began


@dataclass(eq=False, repr=False)
class Windows:
    """Fixed windows, each anchored at its first hit."""

    _clock: Callable[[], float] = time.monotonic
    _wall: Callable[[], float] = time.time
    _windows: dict[str, _Window] = field(default_factory=dict)
    _sweep_at: float = 0.0

    def hit(self, hit: Hit) -> RateWindow:
        """Counts a hit, unless it is refused; returns the state of its window."""
        now = self._clock()
        window = self._windows.get(hit.key)
        if window is None or window.ends <= now:
            if now >= self._sweep_at:
                self._sweep_at = now + SWEEP_S
                for key in [key for key, window in self._windows.items() if window.ends <= now]:
                    del self._windows[key]
            reset_at = math.ceil(self._wall() + hit.window_s)
            window = _Window(0, now + hit.window_s, reset_at)
            if hit.cost > 0:
                self._put(hit.key, window)
        allowed = window.used + hit.cost <= hit.limit
        if allowed:
            window.used = max(0, window.used + hit.cost)
        remaining = max(0, hit.limit - window.used)
        return RateWindow(allowed, hit.limit, remaining, window.reset_at, window.ends - now)

    def learn(self, key: str, used: int, left_s: float, reset_at: int) -> None:
        """Adopts the store's count of a window, unless the local count is higher."""
        now = self._clock()
        window = self._windows.get(key)
        if window is not None and window.ends > now:
            used = max(used, window.used)
        self._put(key, _Window(used, now + left_s, reset_at))

    def _put(self, key: str, window: _Window) -> None:
        self._windows.pop(key, None)  # moves the key to the end: the first keys are dropped
        if len(self._windows) >= MAX_WINDOWS:
            del self._windows[next(iter(self._windows))]
        self._windows[key] = window


class LeaseTable:
    """Leases by key, with their members and expiry."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, dict[str, float]] = {}  # key -> member -> monotonic seconds

    def acquire(self, key: str, member: str, limit: int) -> bool:
        """Takes a lease, unless the member has one; False if `limit` are taken."""
        members = self._live(key)
        if member not in members and len(members) >= limit:
            return False
        self._until.setdefault(key, members)[member] = self._clock() + LEASE_S
        return True

    def renew(self, key: str, members: Iterable[str]) -> None:
        """Renews leases; adds unknown members, since a member that renews still holds its lease."""
        until = self._clock() + LEASE_S
        self._until.setdefault(key, {}).update(dict.fromkeys(members, until))

    def release(self, key: str, member: str) -> None:
        members = self._until.get(key, {})
        members.pop(member, None)
        if not members:
            self._until.pop(key, None)

    def sweep(self) -> None:
        """Drops expired leases of all keys; `acquire` drops only those of its own key."""
        for key in list(self._until):
            if not self._live(key):
                del self._until[key]

    def _live(self, key: str) -> dict[str, float]:
        members = self._until.get(key, {})
        now = self._clock()
        for member in [member for member, until in members.items() if until <= now]:
            del members[member]
        return members


class StoreLost(Exception):
    """The store did not answer, or refused the call."""


class LimitStore(ABC):
    """Store in which several processes count. Its coroutines raise StoreLost."""

    backend: str  # label in metrics
    gateways = 1  # known number of processes that count in the store
    is_alone = False  # this process decides short windows itself, and reports hits afterwards

    def __init__(self) -> None:
        self._name = secrets.token_hex(8)  # identifies this process

    @abstractmethod
    async def hits(self, hits: list[Hit]) -> list[RateWindow]:
        """Counts hits in order; returns the window of each."""

    @abstractmethod
    async def acquire(self, key: str, member: str, limit: int) -> bool: ...

    @abstractmethod
    async def renew(self, held: Mapping[str, list[str]]) -> None:
        """Renews the registration of this process, and its leases: members by key."""

    @abstractmethod
    async def release(self, key: str, member: str) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...


@dataclass(eq=False, repr=False)
class SharedLimits:
    """Rate limits and leases of a process. Its methods never fail.

    Hits that arrive during a call to the store are sent together in the next call. A process that
    is alone decides windows of a minute itself, and sends its hits afterwards. A store that fails
    several times in a row is not called until a probe succeeds; meanwhile the tables of this
    process decide, with its share of each limit. Without a store, they always decide."""

    _store: LimitStore | None = None
    windows: Windows = field(default_factory=Windows)
    _: KW_ONLY
    timeout_s: float = 0.05
    most_failures: int = 5  # failures in a row, after which the store is not called
    degraded: bool = False  # the store is lost: the tables of this process decide
    _failures_in_a_row: int = 0
    _waiting: list[tuple[Hit, asyncio.Future[RateWindow]]] = field(default_factory=list)
    _asking: asyncio.Task[None] | None = None
    _decided: list[Hit] = field(default_factory=list)  # hits decided locally, and not reported yet
    _renewing: asyncio.Task[None] | None = None
    _tasks: TaskSet = field(default_factory=TaskSet)
    _held: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))

    def held_under(self, key: str) -> int:
        return len(self._held.get(key, ()))

    async def hit(
        self, key: str, limit: int, window_s: int = WINDOW_S, cost: int = 1
    ) -> RateWindow:
        """Counts a `Hit`; returns the state of its window."""
        began = time.perf_counter()
        hit = Hit(key, limit, window_s, cost)
        backend = LOCAL
        window: RateWindow | None = None
        if self._store is not None and not self.degraded:
            backend = self._store.backend
            if self._store.is_alone and window_s <= WINDOW_S:
                window = self.windows.hit(hit)
                self._report(hit)
            else:
                self._keep_renewing()
                with suppress(StoreLost):
                    window = await self._enqueue(hit)
        if window is None:  # no store, or it is lost
            backend = LOCAL
            window = self.windows.hit(replace(hit, limit=self._share(limit)))
            window = replace(window, limit=limit)
        decision = "allowed" if window.allowed else "refused"
        metrics.limit_decisions.labels(backend, decision).inc()
        metrics.limit_seconds.labels(backend).observe(time.perf_counter() - began)
        return window

    def start(self) -> None:
        """Registers this process in the store: from then on, others share their limits with it."""
        if self._store is not None:
            self._keep_renewing()

    async def acquire(self, key: str, limit: int) -> "Lease | None":
        """Takes a lease under `key`; None if `limit` are taken."""
        member = secrets.token_hex(8)
        free: bool | None = None
        if self._store is not None and not self.degraded:
            self._keep_renewing()
            with suppress(StoreLost):
                free = await self._ask_store(self._store.acquire(key, member, limit))
                self._failures_in_a_row = 0
        if free is None:  # without the store, only leases of this process count
            free = self.held_under(key) < self._share(limit)
        if not free:
            metrics.leases_refused.inc()
            return None
        self._held[key].add(member)
        metrics.leases_live.inc()
        return Lease(self, key, member)

    async def release(self, key: str, member: str) -> None:
        """Releases a lease; does nothing when it is not held."""
        members = self._held.get(key, set())
        if member not in members:
            return
        members.discard(member)
        if not members:
            del self._held[key]
        metrics.leases_live.dec()
        if self._store is None or self.degraded:
            return  # the store's copy is not renewed, so it expires
        with suppress(StoreLost):
            await self._ask_store(self._store.release(key, member))

    async def close(self) -> None:
        self._decided.clear()
        await self._tasks.close()
        if self._store is not None:
            await self._store.close()

    def _enqueue(self, hit: Hit) -> "asyncio.Future[RateWindow]":
        """Sends a hit with the next call to the store."""
        future: asyncio.Future[RateWindow] = asyncio.get_running_loop().create_future()
        self._waiting.append((hit, future))
        if self._asking is None or self._asking.done():
            self._asking = self._tasks.start(self._ask_all(), "count hits", detached=True)
        return future

    def _report(self, hit: Hit) -> None:
        """Reports a locally decided hit after REPORT_AFTER_S, together with others."""
        if not self._decided:
            asyncio.get_running_loop().call_later(REPORT_AFTER_S, self._report_decided)
        self._decided.append(hit)

    def _report_decided(self) -> None:
        hits, self._decided = self._decided, []
        for hit in hits:
            self._enqueue(hit).cancel()  # nothing waits for the answer

    async def _ask_all(self) -> None:
        assert self._store is not None
        batch = list[tuple[Hit, asyncio.Future[RateWindow]]]()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                windows = await self._ask_store(self._store.hits([hit for hit, _ in batch]))
                self._failures_in_a_row = 0
                for (hit, future), window in zip(batch, windows, strict=True):
                    if not future.done():
                        self._learn(hit, window)
                        future.set_result(window)
        except StoreLost:
            pass
        finally:  # otherwise, hits that arrived during a failed call would wait for the next
            batch, self._waiting = batch + self._waiting, []
            for _, future in batch:
                if not future.done():
                    future.set_exception(StoreLost())

    def _learn(self, hit: Hit, window: RateWindow) -> None:
        """Copies the store's count, so that the local tables can replace a lost store."""
        if window.remaining < hit.limit:
            own_limit = self._share(hit.limit)
            used = own_limit - window.remaining * own_limit // hit.limit
            self.windows.learn(hit.key, used, window.left_s, window.reset_at)

    def _share(self, limit: int) -> int:
        """Returns the part of a limit that this process may allow without the store."""
        return max(1, limit // self._store.gateways) if self._store is not None else limit

    async def _ask_store(
        self, question: Coroutine[Any, Any, T], timeout_s: float | None = None
    ) -> T:
        """Awaits a call to the store. Counts every failure, even unexpected ones, and raises it as
        StoreLost."""
        try:
            return await within_deadline(question, timeout_s or self.timeout_s)
        except StoreLost as error:
            lost = error
        except TimeoutError:
            lost = StoreLost("timeout")
        except Exception as error:  # any error of a library: a broken store must fail no request
            logger.exception("limits_failed")
            lost = StoreLost(type(error).__name__)
        self._failures_in_a_row += 1
        if self._failures_in_a_row >= self.most_failures and not self.degraded:
            self.degraded = True
            metrics.limiter_degraded.set(1)
            logger.warning("limits_degraded", extra={"error": str(lost)})
            self._tasks.start(self._probe(), "probe limits", detached=True)
        raise lost

    async def _probe(self) -> None:
        """Calls the store until it answers; no request waits for it."""
        assert self._store is not None
        while True:
            await asyncio.sleep(PROBE_S)
            try:
                await self._ask_store(self._store.hits([PROBE]))
                break
            except StoreLost:
                continue
        self._failures_in_a_row = 0
        self.degraded = False
        metrics.limiter_degraded.set(0)
        logger.info("limits_restored")
        await self._renew()  # the store may have lost the leases

    def _keep_renewing(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = self._tasks.start(self._renew_forever(), "renew leases", detached=True)

    async def _renew_forever(self) -> None:
        while True:
            if not self.degraded:
                await self._renew()
            await asyncio.sleep(RENEW_S)

    async def _renew(self) -> None:
        assert self._store is not None
        held = {key: list(members) for key, members in self._held.items()}
        with suppress(StoreLost):
            await self._ask_store(self._store.renew(held), RENEW_S)
            for key, members in held.items():  # released meanwhile, and maybe added again
                for member in members:
                    if member not in self._held.get(key, ()):
                        await self._ask_store(self._store.release(key, member))


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease that is renewed until it is released, and expires if its process dies."""

    limits: SharedLimits
    key: str
    member: str

    async def release(self) -> None:
        """Releases the lease; a second call does nothing."""
        await self.limits.release(self.key, self.member)
