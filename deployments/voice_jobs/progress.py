"""The progress of voices: forecasts of their completion, and jobs that make none."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from deployments.voice_jobs.job_client import JobState, VoiceJob

logger = logging.getLogger(__name__)

STALLED_S = 240.0  # without progress: then the job has no room on the cluster, or hangs
PRIOR_WEIGHT = 0.1  # of the estimate from the configuration, as a share of a voice


class Forecast:
    """The remaining time: a prior estimate of the whole, corrected by the speed so far.

    Progress comes in steps. Between two of them the estimated end stays where it is; when a step
    takes longer than PRIOR_WEIGHT of the whole, it moves on with the time.
    """

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


@dataclass(slots=True)
class _LastProgress:
    progress: float  # 0 to 1
    since: float
    logged: bool = False


class StallMonitor:
    """Logs jobs without progress."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[VoiceJob, _LastProgress] = {}

    def observe(self, job: VoiceJob, progress: float, state: JobState) -> None:
        """Logs once when there was no progress for STALLED_S."""
        now = self._clock()
        last = self._jobs.setdefault(job, _LastProgress(progress, now))
        if progress > last.progress:
            self._jobs[job] = _LastProgress(progress, now)
        elif now - last.since > STALLED_S and not last.logged:
            last.logged = True
            # Starting: Ray has no process for it. Running: its workers may have no room.
            details = {"job": job.id, "state": state, "progress": round(progress, 3)}
            logger.warning("job_stands_still", extra=details)

    def forget(self, job: VoiceJob) -> None:
        self._jobs.pop(job, None)

    def stalled_s(self) -> float:
        """The longest time that a job has been without progress."""
        now = self._clock()
        return max((now - last.since for last in self._jobs.values()), default=0.0)
