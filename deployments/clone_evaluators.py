"""The processes in which trials run: one engine each, all of them out of the service's way."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import ray
from ray.actor import ActorHandle

from configs.logs import setup_logs
from deployments.clone_priority import stand_back
from pipelines.cloning.trials import Outcome, Target, Trial

RESTARTS = 10  # of one process, before the attempt fails
CPUS = 0.01  # bookkeeping: voices must not take the places of models


class Listener(Protocol):
    """As `pipelines.cloning.trials.Trials`."""

    def run(self, trial: Trial) -> Outcome: ...


class Evaluator:
    """Runs one trial after the other. Ray starts it anew when it dies, and repeats its trial."""

    def __init__(self, listener: Callable[[Target], Listener], target: Target) -> None:
        stand_back()
        setup_logs()
        self._listener = listener(target)

    def run(self, trial: Trial) -> Outcome:
        return self._listener.run(trial)


class Evaluators:
    """Some of them, for one voice."""

    def __init__(self, listener: Callable[[Target], Listener], target: Target, count: int) -> None:
        """`listener` is made in each process. Returns at once; trials wait until one is there."""
        options = {
            "num_cpus": CPUS,
            "scheduling_strategy": "SPREAD",
            "max_restarts": RESTARTS,
            "max_task_retries": 1,
        }
        actor = ray.remote(Evaluator).options(**options)
        self._actors: list[ActorHandle[Any]] = [
            actor.remote(listener, target) for _ in range(count)
        ]

    async def run(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Raises ray.exceptions.RayError for a trial that failed twice."""
        return await shared(trials, [self._run_by(actor) for actor in self._actors])

    def _run_by(self, actor: ActorHandle[Any]) -> "Callable[[Trial], Awaitable[Outcome]]":
        async def run(trial: Trial) -> Outcome:
            outcome: Outcome = await actor.run.options(retry_exceptions=True).remote(trial)
            return outcome

        return run

    def stop(self) -> None:
        """At once, also in the middle of a trial."""
        for actor in self._actors:
            ray.kill(actor)


def evaluators_for(cpus: float, at_once: int, most: int) -> int:
    """How many for one voice, of a cluster with so many cores: one a core, shared by `at_once`."""
    return max(1, min(most, int(cpus) // at_once))


async def shared(
    trials: Sequence[Trial], workers: Sequence[Callable[[Trial], Awaitable[Outcome]]]
) -> list[Outcome]:
    """Each worker takes the next trial as soon as it is free. Raises the first error."""
    waiting = deque(trials)
    outcomes = []

    async def work(run: Callable[[Trial], Awaitable[Outcome]]) -> None:
        while waiting:
            outcomes.append(await run(waiting.popleft()))

    tasks = [asyncio.create_task(work(run)) for run in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return outcomes
