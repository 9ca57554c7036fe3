"""The deployment for custom voices: starts a Ray job for each, and watches it."""

import asyncio

from configs.schema.serve import WorkerArgs
from deployments.workers.worker import BackgroundWorker

CLEANED_EVERY_S = 60.0

# Imports inside functions: the process that builds the application imports this module too.


class VoiceClone(BackgroundWorker):
    """Has no model. One is enough, several do no harm: voices are claimed under leases."""

    job = "deployments.voice_jobs.job"  # the program of a job

    async def __init__(self, args: WorkerArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        import ray

        from configs.load import load_yaml
        from configs.schema.voices import CustomVoicesConfig
        from db.service import service_id
        from deployments.voice_jobs.job_client import VoiceJobClient, places
        from deployments.voice_jobs.watch import Watch
        from pipelines.storage.encryption import Encryption
        from pipelines.voices.queue import VoiceQueue

        settings, database = await self._open()
        service = await database.read(service_id)
        queue = VoiceQueue.of(settings, database, Encryption(settings.secrets.data_keys))
        work = load_yaml(CustomVoicesConfig, "custom_voices").work
        cluster = ray.get_runtime_context().gcs_address
        jobs = VoiceJobClient(service, self.job, cluster, places(settings))
        self._watch = Watch(queue, jobs, work)
        self._start(
            args.models_app, watch_voices=self._watch.run(), delete_left_recordings=_keep_clean()
        )

    async def __del__(self) -> None:
        """Awaited by Serve when the replica stops. Jobs continue unless the service stops too."""
        from deployments.gateway.replica import service_stops

        if await service_stops():
            await self._watch.stop_jobs()
        await self._stop()
        await self._close()


async def _keep_clean() -> None:
    """Deletes temporary files of killed jobs on this machine."""
    from pipelines.voices.fitting.features import delete_left_recordings

    while True:
        await asyncio.to_thread(delete_left_recordings)
        await asyncio.sleep(CLEANED_EVERY_S)
