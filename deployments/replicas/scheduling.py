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
BATCH_S = 3.0  # longest batch, as none is interrupted: 3 files of 17 s took 15 s on 2 cores

URGENCY_NAMES = {FINAL: "final", SPECULATIVE: "speculative", INTERIM: "interim", FILE: "file"}

Results: TypeAlias = list[Transcript | Exception]
Run: TypeAlias = Callable[[list[TranscriptionRequest]], Awaitable[Results]]


@dataclass(slots=True, eq=False)
class _WaitingRequest:
    request: TranscriptionRequest
    since: float  # time of arrival, by the clock
    answer: asyncio.Future[Transcript] = field(default_factory=asyncio.Future)
    # Stored because the request runs in the task of another request, whose context must not change.
    context: Context = field(default_factory=copy_context)

    def rank(self, now: float) -> tuple[float, float]:
        """Return the rank; the smallest comes first, and ageing prevents starvation."""
        return self.request.urgency - (now - self.since) / PATIENCE_S, self.since

    def is_wanted(self) -> bool:
        """Whether the caller still waits for the answer."""
        return not self.answer.done()

    def left(self, now: float) -> TranscriptionRequest:
        """Return the request with `retry_within_s` reduced by its time in the queue. Its decoding
        ends when the caller leaves."""
        wanted = replace(self.request, budget=DecodingBudget(is_wanted=self.is_wanted))
        if self.request.retry_within_s is None:
            return wanted
        left_s = self.request.retry_within_s - (now - self.since)
        return replace(wanted, retry_within_s=left_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    requests: list[_WaitingRequest]  # of the same urgency
    owner: str  # the owner whose turn it is; requests of others only fill the batch
    since: float

    @property
    def urgency(self) -> int:
        return self.requests[0].request.urgency

    @property
    def samples(self) -> int:
        return sum(len(waiting.request.pcm) for waiting in self.requests)

    @property
    def share(self) -> float:
        """Return the owner's share of the batch's work."""
        mine = sum(waiting.request.owner == self.owner for waiting in self.requests)
        return mine / len(self.requests)


class PriorityBatcher(Scheduler[_Batch]):
    """Keeps every slot of an engine busy with waiting requests.

    Owners (tenants) take turns, and the most urgent request of an owner is first. Without turns,
    files that one tenant sent before it left delayed the transcript of another by a minute. Batches
    are formed only from requests that queued while all slots were busy, since a single request is
    done sooner. Use it from one event loop.
    """

    def __init__(
        self,
        run: Run,
        max_concurrency: Callable[[], int],
        max_batch_size: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a scheduler. `run` computes a batch, in order; `max_batch_size` is the limit of
        one call."""
        super().__init__(max_concurrency, clock)
        self._max_batch_size = max_batch_size
        self._run = run
        self._waiting: list[_WaitingRequest] = []
        self._order = TurnOrder(contended_s=CONTENDED_S, clock=clock)
        self._served: dict[str, float] = {}  # when the owner's last batch of files began
        self._tasks = TaskSet()
        self._live_at = float("-inf")
        self._pace_s = 0.0  # seconds that the last batch took per sample

    async def submit(self, request: TranscriptionRequest) -> Transcript:
        """Return the transcript of a request. Raises EngineError.

        Raises EngineOverloaded if an interim would be too late, or if too many requests wait: then
        the newest request of the owner with the most requests is dropped. If the caller is
        cancelled, its request is not decoded; if its batch has begun, it is not decoded again.
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
        """Return the share of the slots that are busy, plus the seconds of waiting work divided by
        WAIT_S."""
        waiting_s = sum(len(waiting.request.pcm) for waiting in self._waiting) * self._pace_s
        return len(self._running) / self._max_concurrency() + waiting_s / WAIT_S

    def _finals_are_late(self, now: float, owner: str) -> bool:
        return any(
            waiting.request.urgency <= SPECULATIVE and now - waiting.since > CROWDED_S
            for waiting in self._waiting
            if waiting.request.owner == owner
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
        """Take the most urgent request of the owner whose turn it is, and similar requests if many
        wait."""
        now, slots = self.clock(), self._max_concurrency()
        self._drop_late(now)
        ready = sorted(self._waiting, key=lambda waiting: waiting.rank(now))
        if not self._room_for_interim():
            ready = [waiting for waiting in ready if waiting.request.urgency != INTERIM]
        urgent = [waiting for waiting in ready if self._is_urgent(waiting, now)]
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
            size = 1  # so that a final that arrives meanwhile waits for at most one interim
        alike = [waiting for waiting in ready if _alike(first.request, waiting.request)]
        alike.sort(key=lambda waiting: waiting.request.owner != owner)  # stable, so ranks remain
        lengths = accumulate(len(waiting.request.pcm) * self._pace_s for waiting in alike)
        size = min(size, max(1, sum(length <= BATCH_S for length in lengths)))
        batch = _Batch(alike[:size], owner, now)
        for waiting in batch.requests:
            self._waiting.remove(waiting)
            name = URGENCY_NAMES[waiting.request.urgency]
            waiting.context.run(metrics.stt_queue_seconds.labels(name).observe, now - waiting.since)
        return batch

    def _first(self, ready: list[_WaitingRequest], free: int, slots: int) -> _WaitingRequest | None:
        """Return the request whose turn it is. An owner who runs nothing but interims may take the
        last slot for live speech, so that no final waits for an interim of its own session."""
        firsts: dict[str, _WaitingRequest] = {}
        for waiting in ready:
            firsts.setdefault(waiting.request.owner, waiting)
        owner = self._order.next(firsts, slots)
        running = [batch.urgency for batch in self._running if batch.owner == owner]
        if owner is not None and not (firsts[owner].request.is_live and {*running} <= {INTERIM}):
            owner = self._order.next(firsts, free)
        return None if owner is None else firsts[owner]

    def _is_urgent(self, waiting: _WaitingRequest, now: float) -> bool:
        """Whether the request comes before files. Files that waited long count as urgent, too."""
        served = self._served.get(waiting.request.owner, waiting.since)
        return waiting.request.urgency < FILE or now - max(served, waiting.since) >= FILE_PATIENCE_S

    def _room_for_interim(self) -> bool:
        """Whether an interim would leave a slot for a final, and delay no other live transcript."""
        live = sum(batch.urgency < FILE for batch in self._running)
        return live < max(1, self._max_concurrency() - 1)

    def _drop_late(self, now: float) -> None:
        for waiting in list(self._waiting):
            if waiting.request.urgency == INTERIM and now - waiting.since > LATE_S:
                self._drop(waiting, "the interim text would be late")

    def _drop_newest(self) -> None:
        counts = Counter(waiting.request.owner for waiting in self._waiting)
        most = max(counts.values())
        newest = next(
            waiting for waiting in reversed(self._waiting) if counts[waiting.request.owner] == most
        )
        self._drop(newest, "too many utterances wait")

    def _drop(self, waiting: _WaitingRequest, reason: str) -> None:
        self._waiting.remove(waiting)
        metrics.stt_dropped.inc()
        if not waiting.answer.done():
            waiting.answer.set_exception(EngineOverloaded(reason))

    async def _answer(self, batch: list[_WaitingRequest]) -> None:
        results: Sequence[Transcript | Exception]
        try:
            now = self.clock()
            results = await self._run([waiting.left(now) for waiting in batch])
        except Exception as error:  # a failure of the engine, raised in all callers
            results = [error] * len(batch)
        for waiting, result in zip(batch, results, strict=True):
            if waiting.answer.done():
                continue  # its caller was cancelled meanwhile
            if isinstance(result, Exception):
                waiting.answer.set_exception(result)
            else:
                waiting.answer.set_result(result)


def _alike(first: TranscriptionRequest, other: TranscriptionRequest) -> bool:
    """Whether two requests may share a batch: they have the same urgency and similar lengths."""
    if first.urgency != other.urgency:
        return False
    shorter, longer = sorted((len(first.pcm), len(other.pcm)))
    return longer <= max(MAX_LENGTH_RATIO * shorter, STT_SAMPLE_RATE)
