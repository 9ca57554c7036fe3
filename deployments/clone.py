"""The deployment that has custom voices made: it starts a Ray job for each, and watches it."""

import asyncio

from configs.serve_schema import CloneArgs
from deployments.metrics import cluster_reports

CLEANED_EVERY_S = 60.0

# Imports inside functions: what builds the application loads this module too.


class VoiceClone:
    """Holds no model. One is enough, and several do no harm: voices are claimed under leases."""

    job = "deployments.clone_job"  # the program of a job

    async def __init__(self, args: CloneArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        from configs.cloning_schema import CloningConfig
        from configs.load import load_yaml
        from configs.logs import setup_logs
        from configs.settings import load_settings
        from db.migrate import upgrade
        from db.session import Database
        from deployments.clone_jobs import Jobs, places
        from deployments.clone_watch import Watch
        from pipelines.sealing import Sealer
        from pipelines.secret_marks import check_secrets
        from pipelines.voice_queue import VoiceQueue

        setup_logs()
        settings = load_settings()
        await asyncio.to_thread(upgrade, settings.database_url)
        self._database = Database(settings.database_url)
        await check_secrets(self._database, settings.secrets)
        queue = VoiceQueue.of(settings, self._database, Sealer(settings.secrets.data_keys))
        work = load_yaml(CloningConfig, "cloning").work
        self._watch = Watch(queue, Jobs(self.job, places(settings)), work)
        self._tasks = [
            asyncio.create_task(self._watch.run(), name="watch voices"),
            asyncio.create_task(_keep_clean(), name="delete left recordings"),
        ]
        if (reports := cluster_reports(args.models_app)) is not None:
            self._tasks.append(asyncio.create_task(reports.run(), name="report metrics"))

    def check_health(self) -> None:
        """Serve restarts the replica when one of its loops has ended."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"the task {task.get_name()!r} has ended")

    async def __del__(self) -> None:
        """Serve awaits this when the replica leaves. Jobs go on unless the service ends too."""
        from deployments.gateway import service_stops

        if await service_stops():
            await self._watch.stop_jobs()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self._database.close)


async def _keep_clean() -> None:
    """Deletes what killed jobs of this machine left."""
    from pipelines.cloning.recordings import delete_left_recordings

    while True:
        await asyncio.to_thread(delete_left_recordings)
        await asyncio.sleep(CLEANED_EVERY_S)
