"""Who of the requests of a replica computes next: the one whose listener would first hear a gap."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

TIGHT_S = 1.0  # with less left, a request computes without those who have twice as much


@dataclass(order=True, slots=True)
class _ScheduledStep:
    deadline: float
    order: int  # of arrival, among turns of one deadline
    future: "Future[Any]" = field(compare=False)
    work: Callable[[], Any] = field(compare=False)


class DeadlineScheduler:
    """A few threads that run steps of many requests, those with the earliest deadline first.

    A request keeps its turn over steps that give nothing yet, as told by `is_empty`, until a more
    urgent one comes or its client leaves: a step in between would begin work of somebody else,
    which the engine then finishes first. Two side by side are slower than each alone, so those who
    have time stand back while somebody has none.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        max_concurrency: Callable[[], int] | None = None,
        is_empty: Callable[[Any], bool] = lambda item: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_concurrency` says how many of the threads may work at once; all, without it."""
        self.clock = clock
        self.is_empty = is_empty
        self._max_concurrency = max_concurrency or (lambda: threads)
        self._running: list[float] = []  # deadlines
        self._waiting: list[_ScheduledStep] = []
        self._count = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def executor(self, deadline_s: float) -> "RequestExecutor":
        """For one request whose listener would hear a gap in `deadline_s` seconds."""
        return RequestExecutor(self, self.clock() + deadline_s)

    def put(self, deadline: float, work: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("no more turns are given")
            heapq.heappush(self._waiting, _ScheduledStep(deadline, next(self._count), future, work))
            self._changed.notify_all()
        return future

    def is_behind(self, deadline: float) -> bool:
        """Whether somebody who waits has an earlier one."""
        with self._changed:
            if self._waiting and self._waiting[0].deadline < deadline:
                return True
            return self._stands_back(deadline)

    def close(self) -> None:
        """Ends the threads after the turns that run; those that wait are cancelled."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            self._changed.notify_all()
        for turn in waiting:
            turn.future.cancel()

    def _work(self) -> None:
        while (turn := self._next()) is not None:
            try:
                _take(turn)
            finally:
                with self._changed:
                    self._running.remove(turn.deadline)
                    self._changed.notify_all()
            del turn  # or a thread at rest would keep the last audio

    def _next(self) -> _ScheduledStep | None:
        with self._changed:
            while not self._waiting or self._must_wait(self._waiting[0]):
                if self._closed and not self._waiting:
                    return None
                self._changed.wait()
            turn = heapq.heappop(self._waiting)
            self._running.append(turn.deadline)
            return turn

    def _must_wait(self, turn: _ScheduledStep) -> bool:
        return len(self._running) >= self._max_concurrency() or self._stands_back(turn.deadline)

    def _stands_back(self, deadline: float) -> bool:
        now = self.clock()
        return deadline > now + 2 * TIGHT_S and min(self._running, default=deadline) < now + TIGHT_S


def _take(turn: _ScheduledStep) -> None:
    if not turn.future.set_running_or_notify_cancel():
        return  # its client left while it waited
    try:
        result = turn.work()
    except BaseException as error:  # whoever waits for the future shall see it
        turn.future.set_exception(error)
    else:
        turn.future.set_result(result)


class RequestExecutor(Executor):
    """The turns of one request, one after the other: an executor for `iterate_in_thread`."""

    def __init__(self, turns: DeadlineScheduler, deadline: float) -> None:
        self._turns = turns
        self._deadline = deadline
        self._last: Future[Any] | None = None
        self._left = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        def step() -> T:
            while True:
                item = fn(*args, **kwargs)
                if not self._turns.is_empty(item):
                    return item
                if self._left or self._turns.is_behind(self._deadline):
                    return item

        future = self._turns.put(self._deadline, step)
        self._last = future
        return future

    def extend_deadline(self, seconds: float) -> None:
        """Moves the deadline by the audio that the listener got."""
        self._deadline = max(self._deadline, self._turns.clock()) + seconds

    def leave(self) -> None:
        """Gives back the turn that waits, or ends the one that runs after its step."""
        self._left = True
        if self._last is not None:
            self._last.cancel()
