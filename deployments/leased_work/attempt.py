"""One attempt to build a voice: runs the trials of its fit, and updates its row in the queue."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from configs.schema.voices import VoiceWorkConfig
from db.voices.voices import Voice
from deployments.leased_work.makers import AnyFit
from pipelines.errors import MAY_PASS, InvalidAudio, NotFound
from pipelines.jobs.leases import until_available
from pipelines.voices.queue import VoiceQueue
from pipelines.voices.report import FailedFit, FittedVoice, Preview

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECKPOINT_S = 10.0
UNDECODABLE_AFTER = 3  # attempts, after which undecodable recordings fail the voice
PRIOR_WEIGHT = 0.1  # weight of the configured estimate, as a share of the whole work
STALL_S = 3600.0  # timeout of one step of trials, longer than a step takes on a busy service

AttemptResult = Literal["ready", "failed", "gone", "gave_way"]
"""gone: the voice was deleted, or claimed by another attempt."""


RunTrials = Callable[[Sequence[Any]], Awaitable[list[Any]]]
"""Runs trials, and returns their outcomes in any order. Raises the error of a trial that fails
twice."""


class Forecast:
    """Estimates the remaining time: a prior estimate of the total, corrected by the speed so far.
    Progress comes in steps. Between two steps the estimated end is constant; if a step takes longer
    than PRIOR_WEIGHT of the total, the end is postponed."""

    def __init__(
        self, whole_s: float, progress: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._prior_s = whole_s
        self._first = self._last = progress
        self._clock = clock
        self._began = self._moved_at = clock()
        self._whole_s = whole_s

    def remaining_s(self, progress: float) -> float:
        now = self._clock()
        if progress > self._last:
            gained = progress - self._first
            elapsed_s = now - self._began
            self._whole_s = (PRIOR_WEIGHT * self._prior_s + elapsed_s) / (PRIOR_WEIGHT + gained)
            self._last, self._moved_at = progress, now
        since_s = now - self._moved_at
        left_s = (1.0 - self._last) * self._whole_s
        return max(left_s - min(since_s, PRIOR_WEIGHT * self._whole_s), 0.0)


@dataclass(eq=False, repr=False)
class FitAttempt:
    """An attempt to build a voice, by the process with its lease. `run` is called once and can be
    cancelled."""

    queue: VoiceQueue
    claimed: Voice
    work: VoiceWorkConfig
    begin: Callable[[list[bytes], bytes | None], AnyFit]  # a fit of recordings and a checkpoint
    workers: Callable[[Any], RunTrials]
    engine: str  # name of the voice's engine
    compute: ThreadPoolExecutor  # a single thread, for blocking work
    _progress: float | None = None  # None: not known yet
    _state: tuple[bytes, Preview | None] | None = None  # the newest checkpoint, if not stored yet
    _stored_at: float = float("-inf")  # so that the first checkpoint is stored at once
    _began: float = 0.0  # start of its turn

    def __post_init__(self) -> None:
        self._forecast = Forecast(self.work.seconds_per_voice, 0.0)

    async def run(self) -> AttemptResult:
        """Run the attempt. Raises the errors of the fit, its trials or the stores; another attempt
        can follow."""
        return await self.queue.under_lease(self.claimed, self._make(), self._renew) or "gone"

    async def give_back(self) -> None:
        """Store a checkpoint and release the lease, after `run` was cancelled."""
        if not await self._renew():
            return
        if self._state:
            await self.queue.keep_checkpoint(self.claimed, *self._state)
        await self.queue.give_back(self.claimed)

    async def _renew(self) -> bool:
        if self._progress is None:
            return await self.queue.renew(self.claimed)
        left_s = self._forecast.remaining_s(self._progress)
        return await self.queue.renew(self.claimed, self._progress, left_s)

    async def _make(self) -> AttemptResult:
        try:
            fit = await self._begin_fit()
        except NotFound:
            return "gone"
        except InvalidAudio as error:
            if self.claimed.attempt < UNDECODABLE_AFTER:
                raise  # to try again, since the recordings could be decoded at their upload
            return await self._finish(FailedFit(error.code, str(error)))
        run_trials = self.workers(fit.target)
        self._began = time.monotonic()
        while trials := await self._in_thread(lambda: fit.next_trials()):
            is_kept = self._stored_at >= self._began and self._state is None
            if is_kept and await self.queue.give_way(self.claimed, self._began):
                return "gave_way"
            began = time.monotonic()
            async with asyncio.timeout(STALL_S):
                outcomes = await run_trials(trials)
            self._state = await self._in_thread(partial(_observe, fit, outcomes))
            self._progress = fit.progress
            took_s = round(time.monotonic() - began, 2)
            logger.info("trials_rated", extra=self._log_fields(trials=len(trials), took_s=took_s))
            if not await self._store_checkpoint():
                return "gone"
        return await self._finish(await self._in_thread(fit.result))

    async def _begin_fit(self) -> AnyFit:
        """Create the fit. Raises NotFound or InvalidAudio."""
        samples = await until_available(lambda: self.queue.samples(self.claimed))
        state = await until_available(lambda: self.queue.checkpoint(self.claimed))
        pack = await until_available(lambda: self.queue.replaced_pack(self.claimed, self.engine))
        fit = await self._in_thread(lambda: self.begin(samples, state))
        fit.replaced = pack
        self._progress = fit.progress
        self._forecast = Forecast(self.work.seconds_per_voice, fit.progress)
        logger.info("fit_started", extra=self._log_fields(resumed=state is not None))
        return fit

    async def _store_checkpoint(self) -> bool:
        """Store a checkpoint if one is due; return False if the lease is lost."""
        now = time.monotonic()
        is_due = now >= min(self._stored_at + CHECKPOINT_S, self._began + self.work.turn_s)
        if not self._state or not is_due:
            return True
        try:
            kept = await self.queue.keep_checkpoint(self.claimed, *self._state)
        except MAY_PASS as error:
            logger.warning("checkpoint_not_kept", extra={"reason": str(error)})
            return True
        self._state, self._stored_at = None, time.monotonic()
        return kept

    async def _finish(self, result: FittedVoice | FailedFit) -> AttemptResult:
        report = None if result.report is None else result.report.model_dump_json().encode()

        async def finish() -> bool:
            if isinstance(result, FailedFit):
                return await self.queue.fail(self.claimed, result.code, result.reason, report)
            judged = None if result.report is None else result.report.judged
            before = None if judged is None else judged.replaced_similarity
            return await self.queue.publish(
                self.claimed,
                engine=self.engine,
                pack=result.pack,
                similarity=result.similarity,
                report=report,
                replaced_similarity=before,
            )

        if not await until_available(finish):
            return "gone"
        return "failed" if isinstance(result, FailedFit) else "ready"

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.compute, work)

    def _log_fields(self, **more: object) -> dict[str, object]:
        return {"voice": str(self.claimed.id), "progress": round(self._progress or 0, 3), **more}


def _observe(fit: AnyFit, outcomes: Sequence[Any]) -> tuple[bytes, Preview | None] | None:
    """Observe the outcomes; return the checkpoint and the preview."""
    fit.observe(outcomes)
    state = fit.checkpoint()
    return (state, fit.preview) if state else None
