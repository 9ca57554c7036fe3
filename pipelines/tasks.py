"""Tools for asyncio: background tasks, a TTL cache, deadlines, retries, leases. `iterate_in_thread`
is the one place where the event loop iterates blocking generators."""

import asyncio
import contextvars
import logging
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Hashable,
    Iterator,
)
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0  # pauses between attempts of a call
LATE_ROUNDS = 4  # repeated timeouts of one call while this event loop was late itself
LOOP_STEPS = 10  # steps of the event loop between the bytes of an answer and the task that reads it


class TaskSet:
    """Background tasks; holds them until they end, since asyncio itself holds tasks weakly."""

    def __init__(
        self, on_failure: Callable[[asyncio.Task[Any], BaseException], None] | None = None
    ) -> None:
        """Create a set; `on_failure` gets each failed task. Without it, asyncio logs errors."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_failure = on_failure

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def start(
        self, work: Coroutine[Any, Any, T], name: str | None = None, *, detached: bool = False
    ) -> asyncio.Task[T]:
        """Start a task, which does not see the caller's context variables if it is `detached`."""
        context = contextvars.Context() if detached else None
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel every task, and return at once."""
        for task in self:
            task.cancel()

    async def join(self) -> None:
        """Return when all tasks have ended, also those that are started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel every task, and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._on_failure is not None and not task.cancelled():
            if (error := task.exception()) is not None:
                self._on_failure(task, error)


class TtlCache(Generic[K, V]):
    """Values that are loaded on request, and cached; the time to live counts from before the load.
    Callers of the same key share one load, which continues when a caller is cancelled. An exception
    of a load is raised in every caller and not cached. A full cache drops its oldest value."""

    def __init__(self, ttl_s: float | Callable[[V], float], max_size: int) -> None:
        """Create a cache. `ttl_s` may depend on the value; a value with 0 or less is not cached."""
        self._ttl_s = ttl_s
        self._max_size = max_size
        self._entries: dict[K, tuple[V, float]] = {}  # value, and when it expires; oldest first
        self._loads: dict[K, asyncio.Task[V]] = {}
        self._generation = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """Returns the cached value, or what `load` returns. Raises what `load` raises."""
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
        self.forget_if(lambda name, _: name == key)

    def forget_if(self, matches: Callable[[K, V], bool]) -> None:
        """Drops matching values. Running loads may be older: their values are not cached."""
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
    """Await `call`. Raises TimeoutError after `timeout_s`: then `call` is cancelled, but not waited
    for. Only the time of the callee counts: if the event loop itself was late, this looks for an
    answer that came meanwhile, and waits again."""
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
    """Retrieve the exception of a task, as a callback, so that asyncio does not log it."""
    if not done.cancelled():
        done.exception()


async def wait_within(event: asyncio.Event, timeout_s: float | None) -> None:
    """Return when the event is set, or after `timeout_s`."""
    # In Python 3.11, `asyncio.wait_for` swallows a cancellation that comes together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def retry(
    call: Callable[[], Awaitable[T]],
    errors: Errors,
    *,
    within_s: float,
    longest_pause_s: float = LONGEST_PAUSE_S,
) -> T:
    """Call until it succeeds, with exponential backoff; exceptions other than `errors` end it at
    once. Raises the last error if the next pause would end later than `within_s`."""
    until, pause_s = time.monotonic() + within_s, FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except errors as error:
            if time.monotonic() + pause_s > until:
                raise
            logger.warning("call_retried", extra={"reason": str(error)})
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_pause_s)


async def keep_lease(
    renew: Callable[[], Awaitable[bool]], every_s: float, errors: Errors, *, at_once: bool = False
) -> None:
    """Renews a lease until it is cancelled, or `renew` returns False: another process has it. On
    `errors` it continues, since the holder has the lease until another process takes it."""
    pause_s = 0.0 if at_once else every_s
    while True:
        await asyncio.sleep(pause_s)
        pause_s = every_s
        try:
            if not await renew():
                return
        except errors as error:
            logger.warning("lease_not_renewed", extra={"reason": str(error)})


async def while_leased(
    work: Coroutine[Any, Any, T],
    renew: Callable[[], Awaitable[bool]],
    every_s: float,
    errors: Errors,
    grace_s: float,
) -> T | None:
    """Return the result of `work`, under a lease that is renewed at once, and then as in
    `keep_lease`. Returns None if the lease is lost: the work is then cancelled after `grace_s`, in
    which it can end if its own success has ended the lease."""
    tasks = TaskSet()
    lease = tasks.start(keep_lease(renew, every_s, errors, at_once=True))
    working = tasks.start(work)
    try:
        await asyncio.wait((lease, working), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((working,), timeout=grace_s)
        if working.done():
            return working.result()
        lease.result()
        return None
    finally:
        await tasks.close()


async def iterate_in_thread(
    generator: Generator[T, None, None], executor: Executor | None = None
) -> AsyncGenerator[T, None]:
    """Pulls one item at a time from a blocking generator in a thread. The generator sees the
    context variables of the consumer. When that stops, the running pull ends in its thread, where
    the generator is closed: closing it at once would fail with "generator already executing"."""
    end, context = object(), contextvars.copy_context()
    loop = asyncio.get_running_loop()
    pull: asyncio.Future[object] | None = None
    try:
        while True:
            pull = loop.run_in_executor(executor, context.run, partial(next, generator, end))
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
