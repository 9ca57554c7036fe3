"""Worker processes for trials, one engine each, at the lowest scheduling priority."""

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.actor import ActorHandle

from deployments.leased_work.makers import Maker
from models.memory import give_back
from pipelines.tasks import TaskSet
from telemetry.logs import setup_logs

logger = logging.getLogger(__name__)

RESTARTS = 10  # restarts of one process before the attempt fails
CPUS = 0.01  # reserved with Ray; so few that models can still be placed
NICENESS = 19
# Niceness of a job's session, which gives it a tenth of the service's weight. Measured with the
# workers' NICENESS instead: a job held a database lock for a second, and a batch beside the workers
# of a voice took 104 s instead of 15 s.
JOB_SHARE = 10
SHARE_TRIES, SHARE_PAUSE_S = 20, 0.1  # the kernel limits users except root to one change in 0.1 s

AUTOGROUP = Path("/proc/self/autogroup")

Run = Callable[[Any], Awaitable[Any]]
"""Runs a trial and returns its outcome."""


class Evaluator:
    """An actor that runs one trial at a time. Ray restarts an actor that died, and repeats its
    trial."""

    def __init__(self, maker: Maker, target: Any) -> None:
        lower_priority()
        setup_logs()
        self._trials = maker.trials(target)
        give_back()  # measured: 30 MB of freed memory after loading

    def run(self, trial: Any) -> Any:
        return self._trials.run(trial)


class Evaluators:
    """The evaluators of one voice."""

    def __init__(self, maker: Maker, target: Any, count: int) -> None:
        """Start the actors and return at once; trials wait for their start."""
        has_gpu = ray.cluster_resources().get("GPU", 0) > 0
        options = {
            "num_cpus": CPUS,
            "num_gpus": maker.gpus if has_gpu else 0,  # a CPU gives the same result, more slowly
            "scheduling_strategy": "SPREAD",
            "max_restarts": RESTARTS,
            "max_task_retries": 1,
        }
        actor: Any = ray.remote(Evaluator).options(**options)
        self._target = ray.put(target)  # kept for restarts: Ray frees objects without references
        self._actors: list[ActorHandle[Any]] = [
            actor.remote(maker, self._target) for _ in range(count)
        ]

    async def run(self, trials: Sequence[Any]) -> list[Any]:
        """Run trials. Raises ray.exceptions.RayError for a trial that failed twice."""
        workers = [actor.run.options(retry_exceptions=True).remote for actor in self._actors]
        return await run_shared(trials, workers)

    def stop(self) -> None:
        """Kill the actors, also during a trial."""
        for actor in self._actors:
            ray.kill(actor)


def evaluators_for(cpus: float, at_once: int, most: int) -> int:
    """Return the number of evaluators for one voice: one per core of the cluster, shared by
    `at_once` voices."""
    return max(1, min(most, int(cpus) // at_once))


async def run_shared(trials: Sequence[Any], workers: Sequence[Run]) -> list[Any]:
    """Distribute trials: each worker takes the next one when it is free. Raises the first error."""
    waiting = deque(trials)
    outcomes = []

    async def work(run: Run) -> None:
        while waiting:
            outcomes.append(await run(waiting.popleft()))

    tasks = TaskSet()
    try:
        await asyncio.gather(*[tasks.start(work(run)) for run in workers])
    finally:
        tasks.cancel()
    return outcomes


def lower_priority(share: int = NICENESS) -> None:
    """Let this thread, and those that it starts, run only on otherwise idle cores: in the
    scheduling class SCHED_IDLE, or with the highest niceness in a sandbox that forbids the class.

    If the kernel divides cores among sessions first (sched_autogroup_enabled), a class counts only
    within a session. Ray starts each job in a session of its own, so a job took half of each core
    from the service. This process then begins a session whose niceness is `share`.
    """
    if AUTOGROUP.exists():
        with suppress(OSError):
            _begin_session(share)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError as error:
        logger.warning("no_idle_scheduling", extra={"reason": str(error)})
        os.nice(NICENESS)


def _begin_session(share: int) -> None:
    """Begin a session for this process, with the niceness `share`. Raises OSError."""
    if os.getsid(0) != os.getpid():
        # A leader of a process group, as each worker of Ray is, cannot begin a session.
        os.setpgid(0, os.getpgid(os.getppid()))
        os.setsid()
    for _ in range(SHARE_TRIES):
        with suppress(BlockingIOError):
            AUTOGROUP.write_text(str(share))
            return
        time.sleep(SHARE_PAUSE_S)
