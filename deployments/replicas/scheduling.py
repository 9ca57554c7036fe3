"""Schedulers: which of a replica's waiting requests its engine computes next.

`DeadlineScheduler` runs steps of speech synthesis in threads, earliest deadline first (EDF) within
the fair share of each tenant.
`PriorityBatcher` runs batches of utterances for transcription by priority, with ageing. Both start
work up to the engine's `max_concurrency`, whenever a request arrives or ends.
"""

import asyncio
import heapq
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from models.errors import EngineError, EngineOverloaded
from models.stt.base import (
    FILE,
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    Transcript,
    TranscriptionRequest,
)
from pipelines.tasks import FairShares, TaskSet
from telemetry import metrics

T = TypeVar("T")
R = TypeVar("R")  # what a scheduler keeps of work that runs

TIGHT_S = 1.0  # with less time left, a request runs without those that have twice as much

# For so long after requests of a second owner, none takes the last free slot if it has one.
CONTENDED_S = 60.0

MAX_LENGTH_RATIO = 2.0  # in a batch, since shorter utterances wait for the longest
CAPACITY = 96  # requests waiting
PATIENCE_S = 2.0  # waiting time that raises a request by one priority (ageing)
LATE_S = 0.1  # an interim that waited longer is dropped
CROWDED_S = 0.3  # while a text waits longer, new interims are refused
LIVE_S = 10.0  # for this long after a live request, files leave one slot free…
FILE_PATIENCE_S = 6.0  # …except those that waited this long, so that they do not starve

URGENCY_NAMES = {FINAL: "final", SPECULATIVE: "speculative", INTERIM: "interim", FILE: "file"}

Results: TypeAlias = list[Transcript | EngineError]
Run: TypeAlias = Callable[[list[TranscriptionRequest]], Awaitable[Results]]


class ReplicaScheduler(ABC, Generic[R]):
    """Fills the free slots of an engine with the next work."""

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
    order: int  # of arrival, for steps with equal deadlines
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


class DeadlineScheduler(ReplicaScheduler[_ScheduledStep]):
    """Threads that run steps of many requests: those of each owner (tenant) in turn, and of its own
    those with the earliest deadline first.

    A request keeps its turn over steps whose result `is_empty`, until a more urgent one arrives or
    it is cancelled: a step of another request in between would begin work that the engine then has
    to finish first. Parallel requests slow each other down, so an owner's requests with time to
    spare wait while one of its own is urgent (TIGHT_S).
    """

    def __init__(
        self,
        threads: int,
        name: str,
        max_concurrency: Callable[[], int],
        is_empty: Callable[[Any], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_concurrency` returns how many of the threads may work at once."""
        super().__init__(max_concurrency, clock)
        self.is_empty = is_empty
        self._waiting: dict[str, list[_ScheduledStep]] = {}  # heaps by owner
        self._shares = FairShares(contended_s=CONTENDED_S, clock=clock)
        self._count = itertools.count()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def executor(self, deadline_s: float, owner: str = "") -> "RequestExecutor":
        """The executor of one request, whose listener hears an underrun in `deadline_s` seconds."""
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
        owner = self._shares.next(ready, free, self._max_concurrency())
        if owner is None:
            return False
        step = heapq.heappop(self._waiting[owner])
        if not self._waiting[owner]:
            del self._waiting[owner]
        self._shares.take(owner)
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
                self._shares.leave(step.owner, self.clock() - began)
                self._fill()
                if not self._running:
                    self._shares.clear()

    def _must_wait(self, deadline: float, owner: str) -> bool:
        now = self.clock()
        running = [one.deadline for one in self._running if one.owner == owner]
        return deadline > now + 2 * TIGHT_S and min(running, default=deadline) < now + TIGHT_S


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


@dataclass(slots=True, eq=False)
class _WaitingRequest:
    request: TranscriptionRequest
    since: float  # time of arrival, by the clock
    answer: asyncio.Future[Transcript] = field(default_factory=asyncio.Future)

    def rank(self, now: float) -> tuple[float, float]:
        """The smallest rank is first; ageing prevents starvation."""
        return self.request.urgency - (now - self.since) / PATIENCE_S, self.since

    def left(self, now: float) -> TranscriptionRequest:
        """The request with `retry_within_s` reduced by the time in the queue."""
        if self.request.retry_within_s is None:
            return self.request
        left_s = self.request.retry_within_s - (now - self.since)
        return replace(self.request, retry_within_s=left_s)


class PriorityBatcher(ReplicaScheduler[int]):
    """Keeps every slot of an engine busy with the most urgent waiting requests.

    Batches form only of requests that queued while all slots were busy: alone, a request is done
    sooner. Used from one event loop.
    """

    def __init__(
        self,
        run: Run,
        max_concurrency: Callable[[], int],
        max_batch_size: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`run` computes a batch, in order; `max_batch_size` is that of one call."""
        super().__init__(max_concurrency, clock)
        self._max_batch_size = max_batch_size
        self._run = run
        self._waiting: list[_WaitingRequest] = []
        self._tasks = TaskSet()
        self._live_at = float("-inf")

    async def submit(self, request: TranscriptionRequest) -> Transcript:
        """The transcript of one request. Raises EngineError.

        EngineOverloaded when too many wait, or when an interim would be too late. A request whose
        caller is cancelled is not decoded, unless its batch has begun.
        """
        now = self.clock()
        if request.urgency < FILE:
            self._live_at = now
        if len(self._waiting) >= CAPACITY:
            metrics.stt_dropped.inc()
            raise EngineOverloaded("too many utterances wait")
        if request.urgency == INTERIM and self._finals_are_late(now):
            metrics.stt_dropped.inc()
            raise EngineOverloaded("final transcripts wait; interims are dropped")
        mine = _WaitingRequest(request, now)
        self._waiting.append(mine)
        try:
            self._fill()
            return await mine.answer
        finally:
            if mine in self._waiting:  # its caller was cancelled
                self._waiting.remove(mine)

    def _finals_are_late(self, now: float) -> bool:
        return any(
            one.request.urgency <= SPECULATIVE and now - one.since > CROWDED_S
            for one in self._waiting
        )

    def _start_next(self, free: int) -> bool:
        batch = self._take(free)
        if not batch:
            return False
        urgency = batch[0].request.urgency
        self._running.append(urgency)
        self._tasks.start(self._answer(batch)).add_done_callback(partial(self._freed, urgency))
        return True

    def _freed(self, urgency: int, task: "asyncio.Task[None]") -> None:
        self._running.remove(urgency)
        self._fill()

    def _take(self, free: int) -> list[_WaitingRequest]:
        """Takes the most urgent request, and similar ones when many wait."""
        now = self.clock()
        self._drop_late(now)
        ready = sorted(self._waiting, key=lambda one: one.rank(now))
        if free == 1 and self._max_concurrency() > 1 and now - self._live_at < LIVE_S:
            ready = [
                one
                for one in ready
                if one.request.urgency < FILE or now - one.since >= FILE_PATIENCE_S
            ]
        if not self._room_for_interim():
            ready = [one for one in ready if one.request.urgency != INTERIM]
        if not ready:
            return []
        first = ready[0]
        size = min(self._max_batch_size(), max(1, len(ready) // self._max_concurrency()))
        if first.request.urgency == INTERIM:
            size = 1  # so that a final that arrives meanwhile waits for at most one
        batch = [one for one in ready if _alike(first.request, one.request)][:size]
        for one in batch:
            self._waiting.remove(one)
            name = URGENCY_NAMES[one.request.urgency]
            metrics.stt_queue_seconds.labels(name).observe(now - one.since)
        return batch

    def _room_for_interim(self) -> bool:
        """Whether an interim would leave a slot for a final, and delay no other live text."""
        live = sum(urgency < FILE for urgency in self._running)
        return live < max(1, self._max_concurrency() - 1)

    def _drop_late(self, now: float) -> None:
        for one in list(self._waiting):
            if one.request.urgency == INTERIM and now - one.since > LATE_S:
                self._waiting.remove(one)
                metrics.stt_dropped.inc()
                if not one.answer.done():
                    one.answer.set_exception(EngineOverloaded("the interim text would be late"))

    async def _answer(self, batch: list[_WaitingRequest]) -> None:
        results: Sequence[Transcript | Exception]
        try:
            now = self.clock()
            results = await self._run([one.left(now) for one in batch])
        except Exception as error:  # a failure of the engine, raised in all callers
            results = [error] * len(batch)
        for one, result in zip(batch, results, strict=True):
            if one.answer.done():
                continue  # its caller was cancelled meanwhile
            if isinstance(result, Exception):
                one.answer.set_exception(result)
            else:
                one.answer.set_result(result)


def _alike(first: TranscriptionRequest, other: TranscriptionRequest) -> bool:
    """Whether they may share a batch: the same urgency and similar lengths."""
    if first.urgency != other.urgency:
        return False
    shorter, longer = sorted((len(first.pcm), len(other.pcm)))
    return longer <= max(MAX_LENGTH_RATIO * shorter, STT_SAMPLE_RATE)
