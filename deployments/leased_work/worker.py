"""The worker deployment: webhook deliveries, custom voices, jobs, and housekeeping."""

import asyncio
from typing import TYPE_CHECKING

from configs.schema.serve import WorkerArgs
from deployments.cluster.compat import keep_replica_on_loopback
from deployments.cluster.user_config import NoUserConfig
from deployments.gateway.model_index import cluster_reports
from telemetry import metrics

if TYPE_CHECKING:
    from pipelines.maintenance.housekeeping import Housekeeper

CLEAN_EVERY_S = 30.0

# Imports are inside functions, because the process that builds the application imports this module.


class Worker(NoUserConfig):
    """A deployment that serves no requests: it delivers, starts jobs, and cleans up. Any number may
    run: deliveries and voices are leased, and housekeeping is idempotent. A single process does all
    three, since each is little work, and a process of Ray takes 90 MB and a hundredth of a core."""

    job = "deployments.leased_work.job"  # the program of a voice's job
    long_job = "deployments.leased_work.long_job"  # the program of a workspace's job

    async def __init__(self, args: WorkerArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        """Migrate the database and check its secrets. Raises SettingsError."""
        import ray

        from configs.load import load_yaml
        from configs.schema.jobs import JobsConfig
        from configs.schema.platform import RetentionConfig
        from configs.schema.voices import CustomVoicesConfig
        from configs.settings import load_settings
        from db.service import service_id
        from deployments.cluster.shared_stores import open_database
        from deployments.leased_work.job_client import MODELS_APP, LeasedJobClient, places
        from deployments.leased_work.watch import Watch
        from pipelines.jobs.fetching import Fetcher, Fetches
        from pipelines.jobs.jobs import Jobs
        from pipelines.maintenance.housekeeping import Housekeeper
        from pipelines.storage.encryption import Encryption
        from pipelines.storage.files import Files
        from pipelines.voices.queue import VoiceQueue
        from pipelines.webhooks.dispatcher import WebhookDispatcher
        from pipelines.webhooks.sender import Sender
        from telemetry.logs import setup_logs
        from telemetry.tracing import start_tracing

        keep_replica_on_loopback()
        setup_logs()
        metrics.declare("worker")
        start_tracing()
        settings = load_settings()
        self._database = await open_database(settings, in_cluster=True)
        encryption = Encryption(settings.secrets.data_keys)
        queue = VoiceQueue.of(settings, self._database, encryption)
        self._sender = Sender(settings.webhooks)
        self._dispatcher = WebhookDispatcher(
            self._database, encryption, self._sender, time_scale=settings.webhooks.time_scale
        )
        service = await self._database.read(service_id)
        cluster = ray.get_runtime_context().gcs_address
        variables = {**places(settings), MODELS_APP: args.models_app}
        jobs = LeasedJobClient(service, self.job, cluster, variables)
        voice_work = load_yaml(CustomVoicesConfig, "custom_voices").work
        job_queue = Jobs.of(settings, self._database, encryption)
        long_jobs = LeasedJobClient(service, self.long_job, cluster, variables, "long-")
        job_work = load_yaml(JobsConfig, "jobs")
        self._watches = (
            Watch(queue, jobs, voice_work),
            Watch(
                job_queue,
                long_jobs,
                job_work,
                metrics.jobs_unfinished,
                metrics.job_still_seconds,
                "job",
            ),
        )
        fetches = Fetches.of(settings, self._database, encryption)
        fetcher = Fetcher(fetches, self._sender, job_work)
        housekeeper = Housekeeper(
            self._database,
            Files(settings, self._database, encryption),
            load_yaml(RetentionConfig, "retention"),
            {"voice": queue, "job": job_queue},
        )
        loops = {
            "deliver": self._dispatcher.run(),
            "watch_voices": self._watches[0].run(),
            "watch_jobs": self._watches[1].run(),
            "fetch": fetcher.run(),
            "keep_clean": keep_clean(housekeeper),
        }
        if (reports := cluster_reports(args.models_app)) is not None:
            loops["report_metrics"] = reports.run()
        self._tasks = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]

    def check_health(self) -> None:
        """Raise an error if one of the loops has ended; Serve then restarts the replica."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"the task {task.get_name()!r} has ended")

    async def __del__(self) -> None:
        """Finish running deliveries. Serve awaits this when the replica stops. Jobs continue,
        unless the service stops too."""
        from deployments.gateway.replica import service_stops

        if await service_stops():
            await asyncio.gather(*(watch.stop_jobs() for watch in self._watches))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._dispatcher.stop()
        await self._sender.aclose()
        await asyncio.to_thread(self._database.close)


async def keep_clean(housekeeper: "Housekeeper") -> None:
    """Clean up periodically, without end; failures are retried the next time."""
    from pipelines.temporary_directories import RECORDINGS, delete_leftover_directories

    while True:
        with metrics.housekeeping_seconds.time():
            await housekeeper.run_once()
            # Deletes files of jobs killed here: no recording may stay unencrypted on disk.
            await asyncio.to_thread(delete_leftover_directories, RECORDINGS)
        await asyncio.sleep(CLEAN_EVERY_S)
