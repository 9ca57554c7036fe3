"""Which of the waiting requests an engine takes next."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from deployments.replicas.timing import URGENCY_NAMES
from models.errors import EngineError, EngineOverloaded
from models.stt.base import (
    FILE,
    INTERIM,
    SPECULATIVE,
    STT_SAMPLE_RATE,
    Transcript,
    TranscriptionRequest,
)
from telemetry import metrics

MAX_LENGTH_RATIO = 2.0  # in a batch, the shorter ones wait for the longest
CAPACITY = 96  # requests waiting
PATIENCE_S = 2.0  # of waiting raise a request by one step of urgency
LATE_S = 0.1  # an interim that waited so long is of no use any more
CROWDED_S = 0.3  # once somebody waits so long for a text, no new interim is taken
LIVE_S = 10.0  # so long after a live request, files leave one lane free…
FILE_PATIENCE_S = 6.0  # …but those that waited so long; else steady live speech would starve them

Results: TypeAlias = list[Transcript | EngineError]
Run: TypeAlias = Callable[[list[TranscriptionRequest]], Awaitable[Results]]


@dataclass(slots=True, eq=False)
class _Waiting:
    request: TranscriptionRequest
    since: float  # by the clock
    answer: asyncio.Future[Transcript] = field(default_factory=asyncio.Future)

    def rank(self, now: float) -> tuple[float, float]:
        """The smallest goes first; none waits for ever, as waiting counts."""
        return self.request.urgency - (now - self.since) / PATIENCE_S, self.since

    def left(self, now: float) -> TranscriptionRequest:
        """The request with what the queue left of its time."""
        if self.request.retry_within_s is None:
            return self.request
        left_s = self.request.retry_within_s - (now - self.since)
        return replace(self.request, retry_within_s=left_s)


class PriorityBatcher:
    """Keeps every lane of an engine busy, with the most urgent of what waits.

    A lane is a call of the engine beside others. A batch forms only out of what queued while all
    lanes were busy: alone, a request is done sooner. Used from one event loop.
    """

    def __init__(
        self,
        run: Run,
        max_concurrency: Callable[[], int],
        max_batch_size: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`run` answers a batch, in order; `max_batch_size` is of one call."""
        self._clock = clock
        self._max_batch_size = max_batch_size
        self._run = run
        self._max_concurrency = max_concurrency
        self._waiting: list[_Waiting] = []
        self._running: dict[asyncio.Task[None], int] = {}  # with the urgency of their batches
        self._live_at = float("-inf")

    async def submit(self, request: TranscriptionRequest) -> Transcript:
        """The answer to one request. Raises EngineError.

        EngineOverloaded when too many wait, or when an interim would come too late. A request
        whose caller is cancelled is not decoded any more, unless its batch has begun.
        """
        now = self._clock()
        if request.urgency < FILE:
            self._live_at = now
        if len(self._waiting) >= CAPACITY:
            metrics.stt_dropped.inc()
            raise EngineOverloaded("too many utterances wait")
        if request.urgency == INTERIM and self._crowded(now):
            metrics.stt_dropped.inc()
            raise EngineOverloaded("final texts wait, interim ones are left out")
        mine = _Waiting(request, now)
        self._waiting.append(mine)
        try:
            self._start()
            return await mine.answer
        finally:
            if mine in self._waiting:  # its caller left
                self._waiting.remove(mine)

    def _crowded(self, now: float) -> bool:
        return any(
            one.request.urgency <= SPECULATIVE and now - one.since > CROWDED_S
            for one in self._waiting
        )

    def _start(self) -> None:
        """Fills the free lanes."""
        while (free := self._max_concurrency() - len(self._running)) > 0:
            batch = self._take(free)
            if not batch:
                return
            task = asyncio.create_task(self._answer(batch))
            self._running[task] = batch[0].request.urgency
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._start()

    def _take(self, free: int) -> list[_Waiting]:
        """Takes the most urgent request, and some like it when many wait."""
        now = self._clock()
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
            size = 1  # a final that comes meanwhile waits for one at most
        alike = [one for one in ready if _alike(first.request, one.request)]
        batch = alike[:size]
        for one in batch:
            self._waiting.remove(one)
            name = URGENCY_NAMES[one.request.urgency]
            metrics.stt_queue_seconds.labels(name).observe(now - one.since)
        return batch

    def _room_for_interim(self) -> bool:
        """Whether a final that comes meanwhile finds a lane, and nobody's text is slowed down."""
        live = sum(urgency < FILE for urgency in self._running.values())
        return live < max(1, self._max_concurrency() - 1)

    def _drop_late(self, now: float) -> None:
        for one in list(self._waiting):
            if one.request.urgency == INTERIM and now - one.since > LATE_S:
                self._waiting.remove(one)
                metrics.stt_dropped.inc()
                if not one.answer.done():
                    one.answer.set_exception(EngineOverloaded("the interim text would be late"))

    async def _answer(self, batch: list[_Waiting]) -> None:
        results: Sequence[Transcript | Exception]
        try:
            now = self._clock()
            results = await self._run([one.left(now) for one in batch])
        except Exception as error:  # a fault of the engine: its callers have to know
            results = [error] * len(batch)
        for one, result in zip(batch, results, strict=True):
            if one.answer.done():
                continue  # its caller left meanwhile
            if isinstance(result, Exception):
                one.answer.set_exception(result)
            else:
                one.answer.set_result(result)


def _alike(first: TranscriptionRequest, other: TranscriptionRequest) -> bool:
    """Whether they may share a batch: of one urgency, and neither waits long for the other."""
    if first.urgency != other.urgency:
        return False
    shorter, longer = sorted((len(first.pcm), len(other.pcm)))
    return longer <= max(MAX_LENGTH_RATIO * shorter, STT_SAMPLE_RATE)
