"""Starts Ray jobs for waiting voices and jobs, a few at a time, and watches them until they end."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from prometheus_client import Gauge

from configs.schema.jobs import WorkConfig
from db.database import utc_now
from db.errors import DatabaseUnavailable
from db.jobs.queue import pause_after
from deployments.leased_work.job_client import JobsUnavailable, LeasedJob, LeasedJobClient
from pipelines.jobs.leases import LeasedQueue
from telemetry import metrics

logger = logging.getLogger(__name__)

LOOK_S = 2.0  # polling interval of the queue
FOLLOW_S = 1.0
EXPECT_S = 10.0  # interval at which the estimates of waiting voices are updated
START_S = 300.0  # timeout of a job's start, since the cluster may have no free resources
GRACE_S = 5.0  # time for a job to end by itself
PAUSE_S = 10.0  # pause after Ray refused a job
QUICK_ATTEMPTS = 2
COUNTED = ("died", "finished")  # finished: the program succeeded, but its work is not done
# Pause after an attempt that does not count, as a share of its time without progress. A job that
# has waited ten minutes for a service that is down pauses for 2.5 minutes, then tries again.
PAUSE_SHARES = {"waits": 0.25, "lost": 1.0, "hung": 1.0}
HANGS_S = 2 * 3600.0  # time without progress after which the job is stopped and begun again
STALLED_S = 240.0  # time without progress: the job hangs, or the cluster has no free resources


@dataclass(eq=False, repr=False)
class StallMonitor:
    """Logs jobs without progress."""

    _clock: Callable[[], float] = time.monotonic
    _progress: dict[LeasedJob, tuple[float, float]] = field(default_factory=dict)  # (value, since)
    _logged: set[LeasedJob] = field(default_factory=set)

    def observe(self, job: LeasedJob, progress: float, state: str) -> float:
        """Return the seconds without progress; log once after STALLED_S."""
        now = self._clock()
        last, since = self._progress.setdefault(job, (progress, now))
        if progress > last:
            self._progress[job] = progress, now
            self._logged.discard(job)
        elif now - since > STALLED_S and job not in self._logged:
            self._logged.add(job)
            # starting: Ray has no process for it. running: its workers may lack resources.
            details = {"job": job.id, "state": state, "progress": round(progress, 3)}
            logger.warning("job_stalled", extra=details)
        return now - self._progress[job][1]

    def forget(self, job: LeasedJob) -> None:
        self._progress.pop(job, None)
        self._logged.discard(job)

    def stalled_s(self) -> float:
        """Return the longest time without progress of any job."""
        now = self._clock()
        return max((now - since for _, since in self._progress.values()), default=0.0)


@dataclass(eq=False, repr=False)
class Watch:
    """Claims rows, starts their Ray jobs, and renews their leases while Ray has the jobs.

    A job computes only on idle cores, and may get none for minutes. A thread of normal priority in
    the same process would wait for the interpreter's lock, held by a thread without a core: beside
    four busy loops on two cores, renewals due every 2 s came up to 14.5 s apart; those from another
    process came up to 2.4 s apart.

    The rows are the source of truth. If this process dies, the job's process renews the lease as
    well as it can; if both die, the lease lapses and the row can be claimed again.
    """

    _queue: LeasedQueue[Any]
    _jobs: LeasedJobClient
    _work: WorkConfig
    _unfinished: Gauge = metrics.voices_unfinished
    _still: Gauge = metrics.voice_still_seconds
    _kind: str = "voice"  # label of the metric of attempts
    _following: dict[LeasedJob, asyncio.Task[None]] = field(default_factory=dict)
    _stalls: StallMonitor = field(default_factory=StallMonitor)
    _refused_since: float | None = None  # since when Ray refuses jobs
    _knows_jobs: bool = False  # whether the jobs of earlier processes are listed
    _is_stopping: bool = False
    _expect_at: float = 0.0

    async def run(self) -> None:
        """Watch the queue; never returns."""
        try:
            while True:
                pause_s = LOOK_S
                try:
                    await self._poll_queue()
                    self._refused_since = None
                except DatabaseUnavailable as error:
                    logger.warning("queue_unavailable", extra={"reason": str(error)})
                except JobsUnavailable as error:
                    logger.warning("jobs_unavailable", extra={"reason": str(error)})
                    self._refused_since = self._refused_since or time.monotonic()
                    pause_s = PAUSE_S
                since = time.monotonic() if self._refused_since is None else self._refused_since
                refused_s = time.monotonic() - since
                self._still.set(max(refused_s, self._stalls.stalled_s()))
                await asyncio.sleep(pause_s)
        finally:
            for task in self._following.values():
                task.cancel()

    async def stop_jobs(self) -> None:
        """Stop the jobs, which store checkpoints and release leases; no more are started."""
        self._is_stopping = True
        for job in list(self._following):
            try:
                await self._jobs.stop(job)
            except JobsUnavailable as error:
                logger.warning("job_not_stopped", extra={"job": job.id, "reason": str(error)})
        deadline = time.monotonic() + GRACE_S
        while self._following and time.monotonic() < deadline:
            await asyncio.sleep(0.1)

    async def _poll_queue(self) -> None:
        held, free = await self._queue.held(), await self._queue.count_free()
        if not self._knows_jobs:
            for job, has_ended in await self._jobs.known():
                if not has_ended or (job.row_id, job.lease) in held:
                    self._follow(job)
            self._knows_jobs = True
        self._unfinished.labels("waiting").set(free)
        self._unfinished.labels("made").set(len(held))
        if free and time.monotonic() >= self._expect_at:
            self._expect_at = time.monotonic() + EXPECT_S
            await self._queue.expect_waiting()
        room = self._work.at_once - max(len(held), len(self._following))
        for _ in range(min(room, free)):
            if self._is_stopping or (claimed := await self._queue.claim()) is None:
                return
            try:
                job = await self._jobs.submit(claimed)
            except JobsUnavailable:
                await self._queue.give_back(claimed)
                raise
            logger.info("job_submitted", extra={"job": job.id, "attempt": claimed.attempt})
            self._follow(job)

    def _follow(self, job: LeasedJob) -> None:
        task = asyncio.create_task(self._watch(job), name=job.id)
        self._following[job] = task
        task.add_done_callback(lambda _: self._forget(job))

    def _forget(self, job: LeasedJob) -> None:
        self._following.pop(job, None)
        self._stalls.forget(job)

    async def _watch(self, job: LeasedJob) -> None:
        """Return when the job has ended or lost its lease."""
        give_up_at = time.monotonic() + START_S
        while True:
            await asyncio.sleep(FOLLOW_S)
            is_held = True
            try:
                claimed = await self._queue.claimed(job.row_id, job.lease)
                is_held = claimed is not None and claimed.lease_until > utc_now()
                state = await self._jobs.state(job)
                if state not in ("starting", "running"):
                    await self._end_attempt(job, state)
                    return
                if claimed is None:
                    await self._end(job)
                    return
                still_s = self._stalls.observe(job, claimed.progress, state)
                gives_up = state == "starting" and time.monotonic() > give_up_at
                if gives_up or still_s > HANGS_S:
                    await self._end_attempt(job, "hung" if still_s > HANGS_S else "waits")
                    await self._end(job)
                    return
                # The job's process may have renewed it lately.
                if claimed.lease_until < utc_now() + timedelta(seconds=self._work.lease_s / 2):
                    await self._queue.renew(claimed)
            except (DatabaseUnavailable, JobsUnavailable) as error:
                logger.warning("job_status_unknown", extra={"job": job.id, "reason": str(error)})
                if not is_held:  # a running job notices the loss by itself
                    return

    async def _end_attempt(self, job: LeasedJob, ending: str) -> None:
        """Return an unfinished row to the queue, or fail it if all attempts are used up.

        The row is available at once after a stop and after the first QUICK_ATTEMPTS, and
        otherwise after a pause. A short outage therefore does not use up all attempts, and work
        that crashes its machine is not repeated often.
        """
        claimed = await self._queue.claimed(job.row_id, job.lease)
        if claimed is None:
            return
        died = ending in COUNTED
        details = {"job": job.id, "attempt": claimed.attempt, "ending": ending, "counted": died}
        logger.warning("attempt_lost", extra=details)
        metrics.attempts_lost.labels(self._kind, ending).inc()
        is_last = died and claimed.attempt >= self._work.most_attempts
        is_quick = claimed.attempt <= QUICK_ATTEMPTS if died else ending == "stopped"
        pause = pause_after(claimed, utc_now(), self._work, PAUSE_SHARES.get(ending, 0.0))
        pause_s = None if is_quick or is_last else pause.total_seconds()
        await self._queue.give_back(claimed, died=died, pause_s=pause_s)
        if is_last:
            await self._queue.fail_hopeless()

    async def _end(self, job: LeasedJob) -> None:
        """Stop a job that lost its lease, unless it ends by itself within GRACE_S."""
        deadline = time.monotonic() + GRACE_S
        while await self._jobs.state(job) in ("starting", "running"):
            if time.monotonic() > deadline:
                logger.warning("job_stopped", extra={"job": job.id})
                await self._jobs.stop(job)
                return
            await asyncio.sleep(FOLLOW_S / 2)
