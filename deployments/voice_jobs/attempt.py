"""One attempt at a voice: asks the fit for trials, has them run, and keeps its row up to date."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from configs.schema.custom_voices import VoiceWorkConfig
from db.errors import DatabaseUnavailable
from deployments.voice_jobs.makers import AnyFit
from pipelines.errors import InvalidAudio, NotFound, StorageUnavailable
from pipelines.voices.fitting.fit import FailedFit, FittedVoice
from pipelines.voices.queue import ClaimedVoice, MadeVoice, VoiceQueue

logger = logging.getLogger(__name__)

T = TypeVar("T")

RENEW_S = 2.0  # a voice that was deleted is noticed so soon
CHECKPOINT_S = 10.0
BELIEVED_AFTER = 3  # attempts: then recordings are taken for unusable
PATIENCE_S = 600.0  # with a database or a store that does not answer
STALL_S = 3600.0  # for some trials, before a worker must hang; a busy service slows them by far
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
TRUST = 0.1  # how much of a voice the guess of its whole time counts as, against what was measured

End = Literal["ready", "failed", "gone"]
"""What came of an attempt. Gone: the voice was deleted, or another attempt has taken it over."""


class Workers(Protocol):
    """Where trials run."""

    async def run(self, trials: Sequence[Any]) -> list[Any]:
        """An outcome for each, in any order. Raises what a trial raises that fails twice."""
        ...


class Forecast:
    """How long the rest takes: what was guessed, corrected by how fast it goes.

    Progress comes in steps. Between two of them the end stays where it is, unless a step takes so
    long that nothing seems to happen: then the end moves on with the time.
    """

    def __init__(
        self, whole_s: float, progress: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._guess_s = whole_s
        self._first = self._last = progress
        self._clock = clock
        self._began = self._moved_at = clock()
        self._whole_s = whole_s

    def remaining_s(self, progress: float) -> float:
        now = self._clock()
        if progress > self._last:
            gained = progress - self._first
            self._whole_s = (TRUST * self._guess_s + now - self._began) / (TRUST + gained)
            self._last, self._moved_at = progress, now
        since_s = now - self._moved_at
        left_s = (1.0 - self._last) * self._whole_s
        return max(left_s - min(since_s, TRUST * self._whole_s), 0.0)


class FitAttempt:
    """Whoever holds the lease runs one, once. Cancelling `run` ends it where it is."""

    def __init__(
        self,
        queue: VoiceQueue,
        claimed: ClaimedVoice,
        work: VoiceWorkConfig,
        begin: Callable[[list[bytes], bytes | None], AnyFit],
        workers: Callable[[Any], Workers],
        engine: str,
        compute: ThreadPoolExecutor,
    ) -> None:
        """`begin` blocks: of recordings and a checkpoint it makes a fit. `engine` speaks the voice.

        `compute` is one thread, in which all that blocks runs.
        """
        self._queue = queue
        self._claimed = claimed
        self._work = work
        self._begin = begin
        self._workers = workers
        self._engine = engine
        self._compute = compute
        self._progress: float | None = None  # None: not known yet
        self._forecast = Forecast(work.seconds_per_voice, 0.0)
        self._state: bytes | None = None  # the newest checkpoint that is not stored yet
        self._stored_at = float("-inf")  # the first is kept as soon as it is there
        self._turn = asyncio.Lock()  # a renewal must not find the voice just finished
        self._is_finished = False

    async def run(self) -> End:
        """Raises what the fit, its trials or the stores raise; the voice can be tried again."""
        beating = asyncio.create_task(self._keep_lease(), name="keep the lease")
        course = asyncio.create_task(self._make(), name="make the voice")
        try:
            await asyncio.wait((beating, course), return_when=asyncio.FIRST_COMPLETED)
            if beating.done() and not course.done() and not self._is_finished:
                beating.result()
                return "gone"
            return await course
        finally:
            for task in (beating, course):
                task.cancel()
            await asyncio.gather(beating, course, return_exceptions=True)

    async def give_back(self) -> None:
        """After `run` was cancelled: stores what was reached, and lets another begin at once."""
        if not await self._renew():
            return
        if self._state:
            await self._queue.keep_checkpoint(self._claimed, self._state)
        await self._queue.give_back(self._claimed)

    async def _keep_lease(self) -> None:
        """Returns when the voice is no longer this attempt's."""
        while True:
            async with self._turn:
                if self._is_finished:
                    return
                try:
                    if not await self._renew():
                        return
                except DatabaseUnavailable as error:  # the lease is ours until another takes it
                    logger.warning("lease_not_renewed", extra={"reason": str(error)})
            await asyncio.sleep(RENEW_S)

    async def _renew(self) -> bool:
        if self._progress is None:
            return await self._queue.renew(self._claimed)
        left_s = self._forecast.remaining_s(self._progress)
        return await self._queue.renew(self._claimed, self._progress, left_s)

    async def _make(self) -> End:
        try:
            fit = await self._begun()
        except NotFound:
            return "gone"
        except InvalidAudio as error:
            if self._claimed.attempt < BELIEVED_AFTER:
                raise  # they were decoded before: it may be the machine
            return await self._finish(FailedFit(error.code, str(error), {}))
        workers = self._workers(fit.target)
        while trials := await self._in_thread(fit.next_trials):
            began = time.monotonic()
            async with asyncio.timeout(STALL_S):
                outcomes = await workers.run(trials)
            self._state = await self._in_thread(partial(_observe, fit, outcomes))
            self._progress = fit.progress
            took_s = round(time.monotonic() - began, 2)
            logger.info("trials_told", extra=self._where(trials=len(trials), took_s=took_s))
            if not await self._keep_state():
                return "gone"
        return await self._finish(await self._in_thread(fit.result))

    async def _begun(self) -> AnyFit:
        """Raises NotFound or InvalidAudio."""
        samples = await patiently(lambda: self._queue.samples(self._claimed))
        state = await patiently(lambda: self._queue.checkpoint(self._claimed))
        fit = await self._in_thread(lambda: self._begin(samples, state))
        self._progress = fit.progress
        self._forecast = Forecast(self._work.seconds_per_voice, fit.progress)
        logger.info("fit_begun", extra=self._where(resumed=state is not None))
        return fit

    async def _keep_state(self) -> bool:
        """False when the voice is no longer ours."""
        if not self._state or time.monotonic() < self._stored_at + CHECKPOINT_S:
            return True
        try:
            kept = await self._queue.keep_checkpoint(self._claimed, self._state)
        except (DatabaseUnavailable, StorageUnavailable) as error:
            logger.warning("checkpoint_not_kept", extra={"reason": str(error)})
            return True
        self._state, self._stored_at = None, time.monotonic()
        return kept

    async def _finish(self, result: FittedVoice | FailedFit) -> End:
        report = json.dumps(result.report).encode() if result.report else None

        async def tell() -> bool:
            async with self._turn:
                if isinstance(result, FailedFit):
                    done = await self._queue.fail(self._claimed, result.code, result.reason, report)
                else:
                    made = MadeVoice(self._engine, result.pack, result.similarity, report)
                    done = await self._queue.publish(self._claimed, made)
                self._is_finished = True
                return done

        if not await patiently(tell):
            return "gone"
        return "failed" if isinstance(result, FailedFit) else "ready"

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._compute, work)

    def _where(self, **more: object) -> dict[str, object]:
        return {"voice": str(self._claimed.id), "progress": round(self._progress or 0, 3), **more}


def _observe(fit: AnyFit, outcomes: Sequence[Any]) -> bytes:
    fit.observe(outcomes)
    return fit.checkpoint()


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Waits for a database or a store that is away. Raises its error after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await call()
        except (DatabaseUnavailable, StorageUnavailable) as error:
            if time.monotonic() + pause_s > deadline:
                raise
            logger.warning("store_unavailable", extra={"reason": str(error)})
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
