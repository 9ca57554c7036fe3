"""The scheduler of transcription: batches of utterances by priority, with ageing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

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
from pipelines.scheduling import Scheduler
from pipelines.tasks import TaskSet
from telemetry import metrics

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


class PriorityBatcher(Scheduler[int]):
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
