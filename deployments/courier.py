"""The worker of the cluster: delivers webhooks, and cleans up."""

import asyncio
from typing import TYPE_CHECKING

from configs import metrics
from configs.serve_schema import CourierArgs
from deployments.metrics import cluster_reports

if TYPE_CHECKING:
    from pipelines.housekeeping import Housekeeper

CLEAN_EVERY_S = 30.0

# Imports inside functions: what builds the application loads this module too.


class Courier:
    """Any number may run: deliveries are leased, and chores done twice do no harm."""

    async def __init__(self, args: CourierArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        from configs.load import load_yaml
        from configs.logs import setup_logs
        from configs.retention_schema import RetentionConfig
        from configs.settings import load_settings
        from db.migrate import upgrade
        from db.session import Database
        from pipelines.files import Files
        from pipelines.housekeeping import Housekeeper
        from pipelines.sealing import Sealer
        from pipelines.secret_marks import check_secrets
        from pipelines.voice_queue import VoiceQueue
        from pipelines.webhooks import delivery
        from pipelines.webhooks.sender import Sender

        setup_logs()
        settings = load_settings()
        await asyncio.to_thread(upgrade, settings.database_url)
        self._database = Database(settings.database_url)
        await check_secrets(self._database, settings.secrets)
        sealer = Sealer(settings.secrets.data_keys)
        self._sender = Sender(settings.webhooks)
        self._courier = delivery.Courier(
            self._database, sealer, self._sender, time_scale=settings.webhooks.time_scale
        )
        housekeeper = Housekeeper(
            self._database,
            Files.of(settings, self._database, sealer),
            load_yaml(RetentionConfig, "retention"),
            VoiceQueue.of(settings, self._database, sealer),
        )
        self._tasks = [
            asyncio.create_task(self._courier.run(), name="deliver"),
            asyncio.create_task(keep_clean(housekeeper), name="keep clean"),
        ]
        if (reports := cluster_reports(args.models_app)) is not None:
            self._tasks.append(asyncio.create_task(reports.run(), name="report metrics"))

    def check_health(self) -> None:
        """Serve restarts the replica when one of its loops has ended."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"the task {task.get_name()!r} has ended")

    async def __del__(self) -> None:
        """Serve awaits this when the replica leaves: attempts that run end first."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._courier.stop()
        await self._sender.close()
        await asyncio.to_thread(self._database.close)


async def keep_clean(housekeeper: "Housekeeper") -> None:
    """For ever; what fails is tried again the next time."""
    while True:
        with metrics.housekeeping_seconds.time():
            await housekeeper.run_once()
        await asyncio.sleep(CLEAN_EVERY_S)
