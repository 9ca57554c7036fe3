"""The worker of the cluster: delivers webhooks, and cleans up."""

import asyncio
from typing import TYPE_CHECKING

from configs import metrics
from configs.serve_schema import CourierArgs
from deployments.worker import Worker

if TYPE_CHECKING:
    from pipelines.housekeeping import Housekeeper

CLEAN_EVERY_S = 30.0

# Imports inside functions: what builds the application loads this module too.


class Courier(Worker):
    """Any number may run: deliveries are leased, and chores done twice do no harm."""

    async def __init__(self, args: CourierArgs) -> None:  # type: ignore[misc]  # Serve awaits it
        from configs.load import load_yaml
        from configs.retention_schema import RetentionConfig
        from pipelines.files import Files
        from pipelines.housekeeping import Housekeeper
        from pipelines.sealing import Sealer
        from pipelines.voice_queue import VoiceQueue
        from pipelines.webhooks import delivery
        from pipelines.webhooks.sender import Sender

        settings, database = await self._open()
        sealer = Sealer(settings.secrets.data_keys)
        self._sender = Sender(settings.webhooks)
        self._courier = delivery.Courier(
            database, sealer, self._sender, time_scale=settings.webhooks.time_scale
        )
        housekeeper = Housekeeper(
            database,
            Files.of(settings, database, sealer),
            load_yaml(RetentionConfig, "retention"),
            VoiceQueue.of(settings, database, sealer),
        )
        self._start(
            args.models_app, deliver=self._courier.run(), keep_clean=keep_clean(housekeeper)
        )

    async def __del__(self) -> None:
        """Serve awaits this when the replica leaves: attempts that run end first."""
        await self._stop()
        await self._courier.stop()
        await self._sender.close()
        await self._close()


async def keep_clean(housekeeper: "Housekeeper") -> None:
    """For ever; what fails is tried again the next time."""
    while True:
        with metrics.housekeeping_seconds.time():
            await housekeeper.run_once()
        await asyncio.sleep(CLEAN_EVERY_S)
