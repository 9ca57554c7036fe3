"""Has jobs make the voices that wait, some at a time, and looks after them until they end."""

import asyncio
import logging
import time
from typing import Protocol

from configs.schema.custom_voices import VoiceWorkConfig
from db.errors import DatabaseUnavailable
from deployments.voice_jobs.job_client import JobState, JobsUnavailable, VoiceJob
from deployments.voice_jobs.progress import Paces
from pipelines.voices.queue import ClaimedVoice, VoiceQueue
from telemetry import metrics

logger = logging.getLogger(__name__)

LOOK_S = 2.0  # how long a voice waits at most while nothing is made
FOLLOW_S = 1.0
EXPECT_S = 10.0  # how often those who wait are told anew when it will be their turn
START_S = 300.0  # for a job to begin, on a cluster that has no room
GRACE_S = 5.0  # for a job to end by itself
PAUSE_S = 10.0  # after Ray refused a job
QUICK_ATTEMPTS = 2


class AnyJobs(Protocol):
    """As `deployments.voice_jobs.job_client.VoiceJobClient`."""

    async def submit(self, claimed: ClaimedVoice) -> VoiceJob: ...

    async def known(self) -> list[tuple[VoiceJob, bool]]: ...

    async def state(self, job: VoiceJob) -> JobState: ...

    async def stop(self, job: VoiceJob) -> None: ...


class Watch:
    """Claims voices and hands them to jobs, which keep the leases from then on.

    The rows say what is so: whatever dies, a lease that ends lets the voice be claimed again. Jobs
    are watched only so that this need not be waited for, and so that none goes on for nothing.
    """

    def __init__(self, queue: VoiceQueue, jobs: AnyJobs, work: VoiceWorkConfig) -> None:
        self._queue = queue
        self._jobs = jobs
        self._work = work
        self._following: dict[VoiceJob, asyncio.Task[None]] = {}
        self._paces = Paces()
        self._refused_since: float | None = None  # that voices wait and Ray takes no job
        self._knows_jobs = False  # those that were there before this
        self._is_stopping = False
        self._expect_at = 0.0

    async def run(self) -> None:
        """For ever."""
        try:
            while True:
                pause_s = LOOK_S
                try:
                    await self._look()
                    self._refused_since = None
                except DatabaseUnavailable as error:
                    logger.warning("queue_unavailable", extra={"reason": str(error)})
                except JobsUnavailable as error:
                    logger.warning("jobs_unavailable", extra={"reason": str(error)})
                    self._refused_since = self._refused_since or time.monotonic()
                    pause_s = PAUSE_S
                metrics.voice_still_seconds.set(self._still_s())
                await asyncio.sleep(pause_s)
        finally:
            for task in self._following.values():
                task.cancel()

    async def stop_jobs(self) -> None:
        """They keep what they have reached, and give their voices back. None begins after this."""
        self._is_stopping = True
        for job in list(self._following):
            try:
                await self._jobs.stop(job)
            except JobsUnavailable as error:
                logger.warning("job_not_stopped", extra={"job": job.id, "reason": str(error)})
        deadline = time.monotonic() + GRACE_S
        while self._following and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    async def _look(self) -> None:
        if not self._knows_jobs:
            held = await self._queue.held()
            for job, has_ended in await self._jobs.known():
                if not has_ended or (job.voice_id, job.lease) in held:
                    self._follow(job)
            self._knows_jobs = True
        state = await self._queue.state()
        metrics.voices_unfinished.labels("waiting").set(state.free)
        metrics.voices_unfinished.labels("made").set(state.held)
        if state.free and time.monotonic() >= self._expect_at:
            self._expect_at = time.monotonic() + EXPECT_S
            await self._queue.expect_waiting()
        room = self._work.at_once - max(state.held, len(self._following))
        for _ in range(min(room, state.free)):
            if self._is_stopping or (claimed := await self._queue.claim()) is None:
                return
            try:
                job = await self._jobs.submit(claimed)
            except JobsUnavailable:
                await self._queue.give_back(claimed)
                raise
            logger.info("job_submitted", extra={"job": job.id, "attempt": claimed.attempt})
            self._follow(job)

    def _still_s(self) -> float:
        """For how long the slowest job has got no further, or Ray has taken none."""
        refused_s = 0.0 if self._refused_since is None else time.monotonic() - self._refused_since
        return max(refused_s, self._paces.still_s())

    def _follow(self, job: VoiceJob) -> None:
        task = asyncio.create_task(self._see_off(job), name=job.id)
        self._following[job] = task
        task.add_done_callback(lambda _: self._forget(job))

    def _forget(self, job: VoiceJob) -> None:
        self._following.pop(job, None)
        self._paces.forget(job)

    async def _see_off(self, job: VoiceJob) -> None:
        """Returns when the job has ended, or is to be forgotten."""
        give_up_at = time.monotonic() + START_S
        while True:
            await asyncio.sleep(FOLLOW_S)
            is_held = True
            try:
                claimed = await self._held(job)
                is_held = claimed is not None
                state = await self._jobs.state(job)
                if state == "ended":
                    await self._lost(job)
                    return
                if claimed is None:
                    await self._end(job)
                    return
                self._paces.note(job, claimed.progress, state)
                if state == "starting":
                    if time.monotonic() > give_up_at:
                        await self._end(job)
                        await self._queue.give_back(claimed)
                        return
                    await self._queue.renew(claimed)
            except (DatabaseUnavailable, JobsUnavailable) as error:
                logger.warning("job_not_seen", extra={"job": job.id, "reason": str(error)})
                if not is_held:  # if it is there after all, it notices by itself
                    return

    async def _held(self, job: VoiceJob) -> ClaimedVoice | None:
        """The voice, while its lease is the job's and has not ended."""
        if not await self._queue.holds(job.voice_id, job.lease):
            return None
        return await self._queue.claimed(job.voice_id, job.lease)

    async def _lost(self, job: VoiceJob) -> None:
        """Lets the voice be claimed again, if the job did not finish it.

        At once at first, later when the lease ends: an outage of a minute uses up not all attempts.
        """
        claimed = await self._queue.claimed(job.voice_id, job.lease)
        if claimed is not None:
            logger.warning("attempt_lost", extra={"job": job.id, "attempt": claimed.attempt})
            metrics.voice_attempts_lost.inc()
            if claimed.attempt <= QUICK_ATTEMPTS:
                await self._queue.give_back(claimed, failed=True)

    async def _end(self, job: VoiceJob) -> None:
        """A job whose voice is another's or nobody's notices it; one that hangs does not."""
        deadline = time.monotonic() + GRACE_S
        while await self._jobs.state(job) != "ended":
            if time.monotonic() > deadline:
                logger.warning("job_stopped", extra={"job": job.id})
                await self._jobs.stop(job)
                return
            await asyncio.sleep(FOLLOW_S / 2)
