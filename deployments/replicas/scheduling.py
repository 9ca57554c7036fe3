"""The scheduler of transcription: batches of speech by tenant and priority, with ageing."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TypeAlias

from deployments.autoscaling import WAIT_S
from models.errors import EngineOverloaded
from models.fairness.scheduling import Scheduler
from models.fairness.shares import CONTENDED_S
from models.fairness.turns import TurnOrder
from models.stt.base import (
    FILE,
    FINAL,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    DecodingBudget,
    Transcript,
    TranscriptionRequest,
)
from pipelines.tasks import TaskSet
from telemetry import metrics

MAX_LENGTH_RATIO = 2.0  # in a batch, since shorter utterances wait for the longest
CAPACITY = 96  # requests waiting
PATIENCE_S = 2.0  # waiting time that raises a request by one priority (ageing)
LATE_S = 0.1  # an interim that waited longer is dropped
CROWDED_S = 0.3  # while a text waits longer, new interims are refused
LIVE_S = 10.0  # for this long after a live request, files leave one slot free…
FILE_PATIENCE_S = 6.0  # …except those that waited this long, so that they do not starve
BATCH_S = 3.0  # of a batch: nothing interrupts it, and three of 17 s took 15 s of two cores

URGENCY_NAMES = {FINAL: "final", SPECULATIVE: "speculative", INTERIM: "interim", FILE: "file"}

Results: TypeAlias = list[Transcript | Exception]
Run: TypeAlias = Callable[[list[TranscriptionRequest]], Awaitable[Results]]


@dataclass(slots=True, eq=False)
class _WaitingRequest:
    request: TranscriptionRequest
    since: float  # time of arrival, by the clock
    answer: asyncio.Future[Transcript] = field(default_factory=asyncio.Future)
    # Its turn comes in the task of another request, where nothing of it is to be noted.
    context: Context = field(default_factory=copy_context)

    def rank(self, now: float) -> tuple[float, float]:
        """The smallest rank is first; ageing prevents starvation."""
        return self.request.urgency - (now - self.since) / PATIENCE_S, self.since

    def is_wanted(self) -> bool:
        """Whether its caller waits for the answer."""
        return not self.answer.done()

    def left(self, now: float) -> TranscriptionRequest:
        """The request with `retry_within_s` reduced by the time in the queue, whose decoding ends
        when the caller leaves."""
        wanted = replace(self.request, budget=DecodingBudget(is_wanted=self.is_wanted))
        if self.request.retry_within_s is None:
            return wanted
        left_s = self.request.retry_within_s - (now - self.since)
        return replace(wanted, retry_within_s=left_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    requests: list[_WaitingRequest]  # of the same urgency
    owner: str  # whose turn it is; the others come along
    since: float

    @property
    def urgency(self) -> int:
        return self.requests[0].request.urgency

    @property
    def samples(self) -> int:
        return sum(len(one.request.pcm) for one in self.requests)

    @property
    def share(self) -> float:
        """The part of its work that is the owner's."""
        mine = sum(one.request.owner == self.owner for one in self.requests)
        return mine / len(self.requests)


class PriorityBatcher(Scheduler[_Batch]):
    """Keeps every slot of an engine busy with waiting requests: of owners (tenants) in turn, of one
    owner the most urgent first.

    Without turns, files that one tenant sent and left kept the transcript of another waiting for a
    minute. Batches form only of requests that queued while all slots were busy: alone, a request is
    done sooner. Used from one event loop.
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
        self._order = TurnOrder(contended_s=CONTENDED_S, clock=clock)
        self._served: dict[str, float] = {}  # when the owner's last batch of files began
        self._tasks = TaskSet()
        self._live_at = float("-inf")
        self._pace_s = 0.0  # that the last batch took for a sample of it

    async def submit(self, request: TranscriptionRequest) -> Transcript:
        """The transcript of one request. Raises EngineError.

        EngineOverloaded when an interim would be too late, or when too many wait: then the newest
        of the owner with most of them is refused. A request whose caller is cancelled is not
        decoded, or not again once its batch has begun.
        """
        now = self.clock()
        if request.urgency < FILE:
            self._live_at = now
        if request.urgency == INTERIM and self._finals_are_late(now, request.owner):
            metrics.stt_dropped.inc()
            raise EngineOverloaded("final transcripts wait; interims are dropped")
        mine = _WaitingRequest(request, now)
        self._waiting.append(mine)
        if len(self._waiting) > CAPACITY:
            self._drop_newest()
        try:
            self._fill()
            return await mine.answer
        finally:
            if mine in self._waiting:  # its caller was cancelled
                self._waiting.remove(mine)

    @property
    def load(self) -> float:
        """The share of the slots that are busy, and the seconds of work that wait, by WAIT_S."""
        waiting_s = sum(len(one.request.pcm) for one in self._waiting) * self._pace_s
        return len(self._running) / self._max_concurrency() + waiting_s / WAIT_S

    def _finals_are_late(self, now: float, owner: str) -> bool:
        return any(
            one.request.urgency <= SPECULATIVE and now - one.since > CROWDED_S
            for one in self._waiting
            if one.request.owner == owner
        )

    def _start_next(self, free: int) -> bool:
        batch = self._take(free)
        if batch is None:
            return False
        self._running.append(batch)
        self._order.take(batch.owner)
        if batch.urgency == FILE:
            self._served[batch.owner] = batch.since
        work = self._answer(batch.requests)
        answering = batch.requests[0].context.run(self._tasks.start, work)
        answering.add_done_callback(partial(self._freed, batch))
        return True

    def _freed(self, batch: _Batch, task: "asyncio.Task[None]") -> None:
        self._running.remove(batch)
        now = self.clock()
        self._order.leave(batch.owner, (now - batch.since) * batch.share)
        self._pace_s = (now - batch.since) / max(1, batch.samples)
        self._fill()
        if not self._running:
            self._order.clear()
            self._served.clear()

    def _take(self, free: int) -> _Batch | None:
        """Takes the most urgent request of the owner whose turn it is, and similar ones when many
        wait.
        """
        now, slots = self.clock(), self._max_concurrency()
        self._drop_late(now)
        ready = sorted(self._waiting, key=lambda one: one.rank(now))
        if not self._room_for_interim():
            ready = [one for one in ready if one.request.urgency != INTERIM]
        urgent = [one for one in ready if self._is_urgent(one, now)]
        first = self._first(urgent, free, slots)
        if first is not None:
            ready = urgent
        elif not (free == 1 < slots and now - self._live_at < LIVE_S):
            first = self._first(ready, free, slots)
        if first is None:
            return None
        owner = first.request.owner
        size = min(self._max_batch_size(), max(1, len(ready) // slots))
        if first.request.urgency == INTERIM:
            size = 1  # so that a final that arrives meanwhile waits for at most one
        alike = [one for one in ready if _alike(first.request, one.request)]
        alike.sort(key=lambda one: one.request.owner != owner)  # stable: the others by rank
        lengths = accumulate(len(one.request.pcm) * self._pace_s for one in alike)
        size = min(size, max(1, sum(length <= BATCH_S for length in lengths)))
        batch = _Batch(alike[:size], owner, now)
        for one in batch.requests:
            self._waiting.remove(one)
            name = URGENCY_NAMES[one.request.urgency]
            one.context.run(metrics.stt_queue_seconds.labels(name).observe, now - one.since)
        return batch

    def _first(self, ready: list[_WaitingRequest], free: int, slots: int) -> _WaitingRequest | None:
        """The request whose turn it is.

        Only live speech may take the last slot beside interims of its owner: no final waits for an
        interim of its own session.
        """
        firsts: dict[str, _WaitingRequest] = {}
        for one in ready:
            firsts.setdefault(one.request.owner, one)
        owner = self._order.next(firsts, slots)
        running = [batch.urgency for batch in self._running if batch.owner == owner]
        if owner is not None and not (firsts[owner].request.is_live and {*running} <= {INTERIM}):
            owner = self._order.next(firsts, free)
        return None if owner is None else firsts[owner]

    def _is_urgent(self, one: _WaitingRequest, now: float) -> bool:
        """Whether it comes before files, which do when their owner was not served for long."""
        served = self._served.get(one.request.owner, one.since)
        return one.request.urgency < FILE or now - max(served, one.since) >= FILE_PATIENCE_S

    def _room_for_interim(self) -> bool:
        """Whether an interim would leave a slot for a final, and delay no other live text."""
        live = sum(batch.urgency < FILE for batch in self._running)
        return live < max(1, self._max_concurrency() - 1)

    def _drop_late(self, now: float) -> None:
        for one in list(self._waiting):
            if one.request.urgency == INTERIM and now - one.since > LATE_S:
                self._drop(one, "the interim text would be late")

    def _drop_newest(self) -> None:
        waiting = Counter(one.request.owner for one in self._waiting)
        most = max(waiting.values())
        newest = next(one for one in reversed(self._waiting) if waiting[one.request.owner] == most)
        self._drop(newest, "too many utterances wait")

    def _drop(self, one: _WaitingRequest, reason: str) -> None:
        self._waiting.remove(one)
        metrics.stt_dropped.inc()
        if not one.answer.done():
            one.answer.set_exception(EngineOverloaded(reason))

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
