"""Whether jobs get any further: one that does not may have no room on the cluster, or hang."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from deployments.voice_jobs.job_client import JobState, VoiceJob

logger = logging.getLogger(__name__)

STILL_S = 240.0  # without progress, after which a job is worth a look


@dataclass(slots=True)
class _Pace:
    progress: float  # 0 to 1
    since: float  # when that was new
    told: bool = False


class Paces:
    """Of the jobs that are watched."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paces: dict[VoiceJob, _Pace] = {}

    def note(self, job: VoiceJob, progress: float, state: JobState) -> None:
        """Logs once when nothing has happened for STILL_S."""
        now = self._clock()
        pace = self._paces.setdefault(job, _Pace(progress, now))
        if progress > pace.progress:
            self._paces[job] = _Pace(progress, now)
        elif now - pace.since > STILL_S and not pace.told:
            pace.told = True
            # Starting: Ray has no process for it. Running: its workers may have no room.
            details = {"job": job.id, "state": state, "progress": round(progress, 3)}
            logger.warning("job_stands_still", extra=details)

    def forget(self, job: VoiceJob) -> None:
        self._paces.pop(job, None)

    def still_s(self) -> float:
        """For how long the slowest has got no further."""
        now = self._clock()
        return max((now - pace.since for pace in self._paces.values()), default=0.0)
