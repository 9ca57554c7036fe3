"""Schedulers: which of the waiting work of several owners (tenants) runs next. Whenever a request
arrives or ends, a scheduler starts work until a maximum runs."""

import heapq
import itertools
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from models.fairness.shares import CONTENDED_S
from models.fairness.turns import TurnOrder

T = TypeVar("T")
R = TypeVar("R")  # a scheduler's record of running work

# Requests with over twice this time left wait while another of their owner has less than this.
TIGHT_S = 1.0


class Scheduler(ABC, Generic[R]):
    """Fills free slots with the next work."""

    def __init__(self, max_concurrency: Callable[[], int], clock: Callable[[], float]) -> None:
        self.clock = clock
        self._max_concurrency = max_concurrency
        self._running: list[R] = []

    def _fill(self) -> None:
        while (free := self._max_concurrency() - len(self._running)) > 0:
            if not self._start_next(free):
                return

    @abstractmethod
    def _start_next(self, free: int) -> bool:
        """Starts the next work in one of the `free` slots; False when none may start."""


@dataclass(order=True, slots=True)
class _ScheduledStep:
    deadline: float
    order: int  # order of arrival, for steps with equal deadlines
    owner: str = field(compare=False)
    future: "Future[Any]" = field(compare=False)
    work: Callable[[], Any] = field(compare=False)

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return  # cancelled while it waited
        try:
            result = self.work()
        except BaseException as error:  # raised in the caller, which waits for the future
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class DeadlineScheduler(Scheduler[_ScheduledStep]):
    """Threads that run steps of many requests: owners (tenants) take turns, and an owner's requests
    run by their deadlines, earliest first.

    A request keeps its turn over steps whose result `is_empty`, until it is cancelled or a more
    urgent request arrives: a step of another request in between would begin work that the engine
    then has to finish first. Parallel requests slow each other down, so an owner's requests that
    have time to spare wait while another of its requests is urgent (TIGHT_S)."""

    def __init__(
        self,
        threads: int,
        name: str,
        max_concurrency: Callable[[], int] | None = None,
        is_empty: Callable[[Any], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
        niceness: int = 0,
        is_remote: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a scheduler. `max_concurrency` returns how many threads may work at once, by
        default all. `niceness` is added to that of the process. Parallel requests do not slow each
        other down if the work `is_remote`."""
        most = max_concurrency or (lambda: threads)
        # A step beyond the threads would wait in their own queue, which knows no deadlines.
        super().__init__(lambda: min(threads, most()), clock)
        self.is_empty = is_empty
        self._is_remote = is_remote
        self._waiting: dict[str, list[_ScheduledStep]] = {}  # heaps by owner
        self._order = TurnOrder(contended_s=CONTENDED_S, clock=clock)
        self._count = itertools.count()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, name, os.nice, (niceness,))

    def executor(self, deadline_s: float = 0.0, owner: str = "") -> "RequestExecutor":
        """Return the executor of a request whose listener hears a gap in `deadline_s` seconds."""
        return RequestExecutor(self, self.clock() + deadline_s, owner)

    def put(self, deadline: float, work: Callable[[], T], owner: str = "") -> "Future[T]":
        future: Future[T] = Future()
        step = _ScheduledStep(deadline, next(self._count), owner, future, work)
        with self._lock:
            heapq.heappush(self._waiting.setdefault(owner, []), step)
            self._fill()
        return future

    def is_behind(self, deadline: float, owner: str) -> bool:
        """Whether another owner's request waits, or one of this owner with an earlier deadline."""
        with self._lock:
            mine = self._waiting.get(owner)
            if len(self._waiting) > (mine is not None) or mine and mine[0].deadline < deadline:
                return True
            return self._must_wait(deadline, owner)

    def _start_next(self, free: int) -> bool:
        ready = [
            owner
            for owner, steps in self._waiting.items()
            if not self._must_wait(steps[0].deadline, owner)
        ]
        owner = self._order.next(ready, free)
        if owner is None:
            return False
        step = heapq.heappop(self._waiting[owner])
        if not self._waiting[owner]:
            del self._waiting[owner]
        self._order.take(owner)
        self._running.append(step)
        self._threads.submit(self._run, step)
        return True

    def _run(self, step: _ScheduledStep) -> None:
        began = self.clock()
        try:
            step.run()
        finally:
            with self._lock:
                self._running.remove(step)
                self._order.leave(step.owner, self.clock() - began)
                self._fill()
                if not self._running:
                    self._order.clear()

    def _must_wait(self, deadline: float, owner: str) -> bool:
        now = self.clock()
        running = [step.deadline for step in self._running if step.owner == owner]
        has_time = deadline > now + 2 * TIGHT_S and not self._is_remote()
        return has_time and min(running, default=deadline) < now + TIGHT_S


class RequestExecutor(Executor):
    """Runs the steps of one request in sequence: an executor for `iterate_in_thread`."""

    def __init__(self, scheduler: DeadlineScheduler, deadline: float, owner: str) -> None:
        self._scheduler = scheduler
        self._deadline = deadline
        self._owner = owner
        self._last: Future[Any] | None = None
        self._left = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        def step() -> T:
            while True:
                item = fn(*args, **kwargs)
                if not self._scheduler.is_empty(item):
                    return item
                if self._left or self._scheduler.is_behind(self._deadline, self._owner):
                    return item

        self._last = future = self._scheduler.put(self._deadline, step, self._owner)
        return future

    def extend_deadline(self, seconds: float) -> None:
        """Moves the deadline by the duration of the audio that was sent."""
        self._deadline = max(self._deadline, self._scheduler.clock()) + seconds

    def leave(self) -> None:
        """Cancels the waiting step, or ends the turn after the running step."""
        self._left = True
        if self._last is not None:
            self._last.cancel()
