"""The base class of background workers: the service's database, and endless tasks."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from deployments.compat import keep_replica_on_loopback
from deployments.model_index import cluster_reports

if TYPE_CHECKING:
    from configs.settings import Settings
    from db.database import Database

# Imports inside functions: the process that builds the application imports this module too.


class BackgroundWorker:
    """A replica that serves no requests. Subclasses call `_open` and `_start`."""

    async def _open(self) -> "tuple[Settings, Database]":
        """Migrates the database and checks its secrets. Raises SettingsError."""
        from configs.settings import load_settings
        from db.database import Database
        from db.migrate import upgrade
        from pipelines.accounts.secret_fingerprints import check_secret_fingerprints
        from telemetry.logs import setup_logs

        keep_replica_on_loopback()
        setup_logs()
        settings = load_settings()
        await asyncio.to_thread(upgrade, settings.database_url)
        self._database = Database(settings.database_url)
        await check_secret_fingerprints(self._database, settings.secrets)
        return settings, self._database

    def _start(self, models_app: str, **loops: Coroutine[Any, Any, None]) -> None:
        """Starts the `loops` by name, and the reports of this replica's metrics to `models_app`."""
        if (reports := cluster_reports(models_app)) is not None:
            loops["report_metrics"] = reports.run()
        self._tasks = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]

    def check_health(self) -> None:
        """Raises when one of the loops has ended; Serve then restarts the replica."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"the task {task.get_name()!r} has ended")

    async def _stop(self) -> None:
        """Ends the loops; the database stays open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _close(self) -> None:
        await asyncio.to_thread(self._database.close)
