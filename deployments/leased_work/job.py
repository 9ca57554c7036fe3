"""The Ray job that builds a voice: python -m deployments.leased_work.job VOICE LEASE CLUSTER

The voice is claimed under LEASE. Both this process and the worker's watch renew the lease, because
this process may get no core for a long time.

The exit status is 0 if the voice needs no further attempt; otherwise another attempt follows. WAITS
means that the attempt failed because something did not answer; it does not count.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

import ray

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from configs.settings import load_settings
from db.voices.voices import Voice
from deployments.cluster.shared_stores import open_database
from deployments.gateway.handles import ModelDirectory
from deployments.leased_work.attempt import FitAttempt, RunTrials
from deployments.leased_work.evaluators import (
    JOB_SHARE,
    Evaluators,
    evaluators_for,
    lower_priority,
)
from deployments.leased_work.job_client import MODELS_APP, WAITS
from deployments.leased_work.makers import Maker, maker_for
from pipelines.errors import may_pass
from pipelines.jobs.leases import until_available
from pipelines.storage.encryption import Encryption
from pipelines.voices.queue import VoiceQueue
from telemetry.logs import setup_logs

logger = logging.getLogger(__name__)

STOP_S = 2.0  # time to store a checkpoint; Ray kills the job 3 s after SIGTERM


Work = Callable[[UUID, str], Coroutine[Any, Any, int]]
"""One attempt at a row under a lease; returns the exit status."""


def run(work: Work) -> None:
    """Run `work` and exit with its status, without waiting for threads that compute. The status is
    0, or 1 or WAITS if another attempt should follow.

    Ray is not shut down: if a late answer to a timed-out call arrived during the shutdown, Ray
    would abort the process, and an outage would count as a death.
    """
    row_id, lease, cluster = sys.argv[1:]  # the last is the address of the cluster's GCS
    setup_logs()
    status = WAITS
    try:
        # Not "auto" or the job's RAY_ADDRESS, which may mean another cluster on this machine.
        ray.init(cluster, log_to_driver=False, logging_level=logging.WARNING)
        status = 1
        status = asyncio.run(work(UUID(row_id), lease))
    except Exception as error:  # whatever the error, another attempt follows
        status = WAITS if may_pass(error) else status
        logger.exception("attempt_failed", extra={"id": row_id, "exit_status": status})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


Choose = Callable[[Voice], Awaitable[Maker]]
"""Chooses the method of building a voice."""


async def work(choose: Choose, voice_id: UUID, lease: str) -> int:
    """Run one attempt, if the voice still has this lease; return the exit status."""
    settings = load_settings(new=False)
    config = load_yaml(CustomVoicesConfig, "custom_voices").work
    database = await until_available(partial(open_database, settings, in_cluster=True))
    queue = VoiceQueue.of(settings, database, Encryption(settings.secrets.data_keys))
    claimed = await until_available(partial(queue.claimed, voice_id, lease))
    if claimed is None:
        logger.info("voice_deleted", extra={"voice": str(voice_id)})
        return 0
    maker = await choose(claimed)
    evaluators: list[Evaluators] = []

    def workers(target: Any) -> RunTrials:
        cpus = ray.cluster_resources().get("CPU", 1)
        count = evaluators_for(cpus, config.at_once, maker.most_workers)
        logger.info("evaluators_started", extra={"voice": str(voice_id), "count": count})
        evaluators.append(Evaluators(maker, target, count))
        return evaluators[0].run

    attempt = FitAttempt(
        queue,
        claimed,
        config,
        lambda samples, state: maker.begin(claimed, samples, state),
        workers,
        maker.engine,
        ThreadPoolExecutor(
            1, thread_name_prefix="fit", initializer=lower_priority, initargs=(JOB_SHARE,)
        ),
    )
    try:
        return await until_stopped(voice_id, attempt.run(), attempt.give_back)
    finally:
        for group in evaluators:
            group.stop()


async def until_stopped(
    row_id: UUID, attempt: Coroutine[Any, Any, Any], give_back: Callable[[], Awaitable[None]]
) -> int:
    """Run the attempt; on SIGTERM cancel it and give the row back. Returns the exit status."""
    running = asyncio.create_task(attempt)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        end = await running
    except asyncio.CancelledError:
        logger.info("attempt_stopped", extra={"id": str(row_id)})
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await give_back()
        return 1
    logger.info("attempt_ended", extra={"id": str(row_id), "outcome": end})
    return 0


async def as_configured(claimed: Voice) -> Maker:
    """Choose the method by the deployed models. Raises like `deployed_models`."""
    directory = await deployed_models()
    return maker_for(claimed.language, directory.infos.values())


async def deployed_models() -> ModelDirectory:
    """Read the models of the application that the environment names. Raises EngineLost if it does
    not answer while `until_available` waits."""
    directory = ModelDirectory(os.environ[MODELS_APP])
    await until_available(directory.refresh)
    return directory


if __name__ == "__main__":
    run(partial(work, as_configured))
