"""What the workers behind the scenes share: the service's database, and tasks that never end."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from deployments.model_index import cluster_reports

if TYPE_CHECKING:
    from configs.settings import Settings
    from db.database import Database

# Imports inside functions: what builds the application loads this module too.


class BackgroundWorker:
    """A replica without requests. Subclasses call `_open` and `_start`."""

    async def _open(self) -> "tuple[Settings, Database]":
        """With the newest tables and the right secrets. Raises SettingsError."""
        from configs.settings import load_settings
        from db.database import Database
        from db.migrate import upgrade
        from pipelines.accounts.secret_fingerprints import check_secret_fingerprints
        from telemetry.logs import setup_logs

        setup_logs()
        settings = load_settings()
        await asyncio.to_thread(upgrade, settings.database_url)
        self._database = Database(settings.database_url)
        await check_secret_fingerprints(self._database, settings.secrets)
        return settings, self._database

    def _start(self, models_app: str, **loops: Coroutine[Any, Any, None]) -> None:
        """`loops` by name, beside the reports of what this replica counts to `models_app`."""
        if (reports := cluster_reports(models_app)) is not None:
            loops["report_metrics"] = reports.run()
        self._tasks = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]

    def check_health(self) -> None:
        """Serve restarts the replica when one of its loops has ended."""
        for task in self._tasks:
            if task.done():
                raise RuntimeError(f"the task {task.get_name()!r} has ended")

    async def _stop(self) -> None:
        """Ends the loops; the database is still open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _close(self) -> None:
        await asyncio.to_thread(self._database.close)
