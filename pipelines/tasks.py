"""Tools for asyncio: background tasks, fair slots, a TTL cache, deadlines, retries, leases.

`iterate_in_thread` is the one place where the event loop iterates blocking generators.
"""

import asyncio
import contextvars
import logging
import math
import time
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Iterator,
)
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from pipelines.errors import Overloaded

logger = logging.getLogger(__name__)

Clock = Callable[[], float]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

LATE_ROUNDS = 4  # repeated timeouts of one call while this event loop was late itself
LOOP_STEPS = 10  # of the event loop between the bytes of an answer and the task that reads it


class TaskSet:
    """Background tasks; holds them until they end, since asyncio itself holds tasks weakly."""

    def __init__(
        self, on_failure: Callable[[asyncio.Task[Any], BaseException], None] | None = None
    ) -> None:
        """`on_failure` is called with each task that failed; without it asyncio logs errors that
        no caller retrieved."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def start(
        self, work: Coroutine[Any, Any, T], name: str | None = None, *, detached: bool = False
    ) -> asyncio.Task[T]:
        """A `detached` task does not see the context variables of the request that starts it."""
        context = contextvars.Context() if detached else None
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancels every task, and returns at once."""
        for task in self:
            task.cancel()

    async def join(self) -> None:
        """Returns when all tasks have ended, also those that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancels every task, and waits until they have ended."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._on_failure is not None and not task.cancelled():
            if (error := task.exception()) is not None:
                self._on_failure(task, error)


class FairShares:
    """Whose turn it is of several owners (tenants) that use the same slots.

    A free slot goes to the owner with the fewest slots, then to the one that has used them for the
    shortest time (start-time fair queuing, Goyal, Vin and Cheng 1996), so that a backlog of one
    owner delays another's work by no more than one piece of it. While owners contend, the last free
    slot never goes to one that has a slot, and none gets more than `most` of them.
    """

    def __init__(
        self, *, most: int | None = None, contended_s: float = math.inf, clock: Clock
    ) -> None:
        """Owners contend while two of them have asked within `contended_s`; by default always."""
        self._most = most
        self._contended_s = contended_s
        self._clock = clock
        self._taken: Counter[Hashable] = Counter()
        self._used_s: dict[Hashable, float] = {}  # of this busy period
        self._least_used_s = 0.0  # that of the last turn: a newcomer begins there
        self._latest: dict[Hashable, float] = {}  # when the last two owners came

    def next(self, owners: Collection[K], free: int, slots: int) -> K | None:
        """The owner whose turn it is; None when none may take one of the `free` slots."""
        ready: Iterable[K] = owners
        if self._contend(owners):
            is_last = free == 1 < slots
            most = slots if self._most is None else self._most
            ready = [
                one
                for one in owners
                if self._taken[one] < most and not (is_last and self._taken[one])
            ]
        return min(ready, key=lambda one: (self._taken[one], self._used(one)), default=None)

    def take(self, owner: Hashable) -> None:
        self._taken[owner] += 1
        self._least_used_s = self._used(owner)
        self._latest.pop(owner, None)
        self._latest[owner] = self._clock()
        while len(self._latest) > 2:
            del self._latest[next(iter(self._latest))]

    def leave(self, owner: Hashable, used_s: float) -> None:
        self._taken[owner] -= 1
        self._used_s[owner] = self._used(owner) + used_s

    def clear(self) -> None:
        """Idle: no owner is ahead of another."""
        self._taken.clear()
        self._used_s.clear()
        self._least_used_s = 0.0

    def _contend(self, owners: Iterable[Hashable]) -> bool:
        if math.isinf(self._contended_s):
            return True
        since = self._clock() - self._contended_s
        return len({one for one, at in self._latest.items() if at > since}.union(owners)) > 1

    def _used(self, owner: Hashable) -> float:
        return max(self._used_s.get(owner, 0.0), self._least_used_s)


class FairSlots:
    """A number of slots for work, which owners get in turn (`FairShares`).

    When more than `max_waiting` wait, the newest of the owner with the longest queue is refused
    (longest queue drop, Suter et al. 1998): no owners keep another out.
    """

    def __init__(
        self,
        slots: int,
        max_waiting: int,
        refusal: str,
        clock: Clock = time.monotonic,
        *,
        most: int | None = None,
        contended_s: float = math.inf,
    ) -> None:
        """`refusal` is the message of Overloaded; `most` and `contended_s` are of FairShares."""
        self._clock = clock
        self._slots = self._free = slots
        self._max_waiting = max_waiting
        self._refusal = refusal
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._shares = FairShares(most=most, contended_s=contended_s, clock=clock)

    @asynccontextmanager
    async def slot(self, owner: Hashable) -> AsyncIterator[None]:
        """Waits for a slot, and holds it for the block. Raises Overloaded."""
        leave = await self.take(owner)
        try:
            yield
        finally:
            leave()

    async def take(self, owner: Hashable) -> Callable[[], None]:
        """Waits for a slot; returns the function that gives it back, once. Raises Overloaded."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._fill()
        if sum(map(len, self._waiting.values())) > self._max_waiting:
            longest = max(self._waiting, key=lambda one: (len(self._waiting[one]), one == owner))
            refused = self._remove(longest, -1)
            if not refused.done():
                refused.set_exception(Overloaded(self._refusal))
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting.get(owner, ()):
                self._remove(owner, self._waiting[owner].index(turn))
            elif not turn.cancelled() and turn.exception() is None:
                self._leave(owner, 0.0)
            raise
        began = self._clock()
        return lambda: self._leave(owner, self._clock() - began)

    def _fill(self) -> None:
        while self._free:
            owner = self._shares.next(self._waiting, self._free, self._slots)
            if owner is None:
                return
            turn = self._remove(owner, 0)
            if not turn.cancelled():
                self._free -= 1
                self._shares.take(owner)
                turn.set_result(None)

    def _remove(self, owner: Hashable, at: int) -> "asyncio.Future[None]":
        queue = self._waiting[owner]
        turn = queue[at]
        del queue[at]
        if not queue:
            del self._waiting[owner]
        return turn

    def _leave(self, owner: Hashable, used_s: float) -> None:
        self._free += 1
        self._shares.leave(owner, used_s)
        self._fill()
        if self._free == self._slots:
            self._shares.clear()


class TtlCache(Generic[K, V]):
    """Values that are loaded on request, and cached for a time.

    The time to live counts from before the load began. Concurrent callers of the same key share one
    load, which continues when a caller is cancelled. An exception of a load is raised in every
    caller and is not cached. When the cache is full, the oldest value is dropped.
    """

    def __init__(self, ttl_s: float | Callable[[V], float], max_size: int) -> None:
        """`ttl_s` may depend on the value; a value with 0 or less is not cached."""
        self._ttl_s = ttl_s
        self._max_size = max_size
        self._entries: dict[K, tuple[V, float]] = {}  # value, and when it expires; oldest first
        self._loads: dict[K, asyncio.Task[V]] = {}
        self._generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The cached value, or what `load` returns. Raises what `load` raises."""
        entry = self._entries.get(key)
        if entry is not None and entry[1] > time.monotonic():
            return entry[0]
        loading = self._loads.get(key)
        if loading is None:
            loading = asyncio.create_task(self._load(key, load))
            self._loads[key] = loading
            loading.add_done_callback(partial(self._loaded, key))
        return await asyncio.shield(loading)

    def forget(self, key: K) -> None:
        """The next `get` loads the key again."""
        self.forget_if(lambda name, _: name == key)

    def forget_if(self, matches: Callable[[K, V], bool]) -> None:
        """Drops matching values. Running loads may be older than the change: their values are not
        cached, and later callers do not share them."""
        self._entries = {
            key: entry for key, entry in self._entries.items() if not matches(key, entry[0])
        }
        self._loads = {}
        self._generation += 1

    async def _load(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        generation, asked_at = self._generation, time.monotonic()
        value = await load()
        ttl_s = self._ttl_s(value) if callable(self._ttl_s) else self._ttl_s
        if generation == self._generation and ttl_s > 0:
            self._entries.pop(key, None)
            if len(self._entries) >= self._max_size:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (value, asked_at + ttl_s)
            # So that memory holds no expired values.
            asyncio.get_running_loop().call_later(ttl_s, self._expire, key)
        return value

    def _loaded(self, key: K, done: "asyncio.Task[V]") -> None:
        if self._loads.get(key) is done:
            del self._loads[key]
        ignore_failure(done)  # also when every caller was cancelled

    def _expire(self, key: K) -> None:
        entry = self._entries.get(key)
        if entry is not None and entry[1] <= time.monotonic():
            del self._entries[key]


async def within_deadline(call: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Raises TimeoutError after `timeout_s`: then `call` is cancelled, but not waited for.

    Only the time of the callee counts: an event loop that was busy checks for an answer that came
    meanwhile, and waits again when it was late itself.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(call)
    try:
        for _ in range(LATE_ROUNDS):
            began = loop.time()
            await asyncio.wait([task], timeout=timeout_s)
            late_s = loop.time() - began - timeout_s
            for _ in range(LOOP_STEPS):
                if task.done():
                    return task.result()
                await asyncio.sleep(0)
            if late_s < timeout_s / 2:
                break
        raise TimeoutError
    finally:
        if not task.done():
            task.add_done_callback(ignore_failure)
            task.cancel()


def ignore_failure(done: "asyncio.Future[Any]") -> None:
    """A callback that retrieves the exception, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()


async def retry(
    call: Callable[[], Awaitable[T]],
    errors: Errors,
    *,
    within_s: float,
    first_pause_s: float = 0.1,
    longest_pause_s: float = 5.0,
    on_error: Callable[[Exception], None] | None = None,
) -> T:
    """Calls until it succeeds, with exponential backoff; exceptions other than `errors` end it at
    once. Raises the last error when the next pause would end later than `within_s`."""
    until, pause_s = time.monotonic() + within_s, first_pause_s
    while True:
        try:
            return await call()
        except errors as error:
            if time.monotonic() + pause_s > until:
                raise
            if on_error is not None:
                on_error(error)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_pause_s)


async def keep_lease(renew: Callable[[], Awaitable[bool]], every_s: float, errors: Errors) -> None:
    """Renews a lease until it is cancelled, or `renew` returns False: another process has it.

    On `errors` it continues, since the holder has the lease until another process takes it.
    """
    while True:
        await asyncio.sleep(every_s)
        try:
            if not await renew():
                return
        except errors as error:
            logger.warning("lease_not_renewed", extra={"reason": str(error)})


async def iterate_in_thread(
    generator: Generator[T, None, None], executor: Executor | None = None
) -> AsyncGenerator[T, None]:
    """Pulls one item at a time from a blocking generator in a thread.

    When the consumer stops, the running pull ends in its thread, where the generator is closed:
    closing it at once would fail with "generator already executing".
    """
    end = object()
    loop = asyncio.get_running_loop()
    pull: asyncio.Future[object] | None = None
    try:
        while True:
            pull = loop.run_in_executor(executor, next, generator, end)
            item = await asyncio.shield(pull)
            pull = None
            if item is end:
                return
            yield item  # type: ignore[misc]
    finally:
        if pull is None or pull.done():
            generator.close()
        else:
            pull.add_done_callback(lambda done: _close(done, generator))


def _close(done: "asyncio.Future[object]", generator: Generator[T, None, None]) -> None:
    ignore_failure(done)
    generator.close()
