"""The worker deployment: webhook deliveries and housekeeping."""

import asyncio
from typing import TYPE_CHECKING

from configs.schema.serve import WorkerArgs
from deployments.workers.worker import BackgroundWorker
from telemetry import metrics

if TYPE_CHECKING:
    from pipelines.maintenance.housekeeping import Housekeeper

CLEAN_EVERY_S = 30.0

# Imports inside functions: the process that builds the application imports this module too.


class Courier(BackgroundWorker):
    """Any number may run: deliveries are leased, and housekeeping is idempotent."""

    async def __init__(self, args: WorkerArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        from configs.load import load_yaml
        from configs.schema.platform import RetentionConfig
        from pipelines.maintenance.housekeeping import Housekeeper
        from pipelines.storage.encryption import Encryption
        from pipelines.storage.files import Files
        from pipelines.voices.queue import VoiceQueue
        from pipelines.webhooks import dispatcher
        from pipelines.webhooks.sender import Sender

        settings, database = await self._open()
        encryption = Encryption(settings.secrets.data_keys)
        self._sender = Sender(settings.webhooks)
        self._courier = dispatcher.WebhookDispatcher(
            database, encryption, self._sender, time_scale=settings.webhooks.time_scale
        )
        housekeeper = Housekeeper(
            database,
            Files(settings, database, encryption),
            load_yaml(RetentionConfig, "retention"),
            VoiceQueue.of(settings, database, encryption),
        )
        self._start(
            args.models_app, deliver=self._courier.run(), keep_clean=keep_clean(housekeeper)
        )

    async def __del__(self) -> None:
        """Awaited by Serve when the replica stops: running attempts end first."""
        await self._stop()
        await self._courier.stop()
        await self._sender.aclose()
        await self._close()


async def keep_clean(housekeeper: "Housekeeper") -> None:
    """Runs forever; failures are retried the next time."""
    while True:
        with metrics.housekeeping_seconds.time():
            await housekeeper.run_once()
        await asyncio.sleep(CLEAN_EVERY_S)
