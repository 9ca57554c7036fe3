"""Sends the metrics of this replica to ModelIndex every few seconds, and asks it for all."""

import asyncio
import logging
import time

from ray import serve
from ray.serve.exceptions import RayServeException

from deployments.gateway.handles import ModelIndexHandle
from models.errors import EngineError
from telemetry import metrics
from telemetry.reports import OwnReports, Report

logger = logging.getLogger(__name__)

REPORT_S = 5.0
TIMEOUT_S = 1.0
LAG_PROBE_S = 0.5


class ClusterReports(OwnReports):
    """The metrics of this replica and, through ModelIndex, of all others."""

    def __init__(self, models_app: str, deployment: str, replica: str) -> None:
        super().__init__(deployment, replica)
        self._index = ModelIndexHandle(models_app)
        self._taking = asyncio.Lock()  # reports are taken in order

    async def all(self) -> list[Report]:
        """All reports; only that of this process while ModelIndex does not answer."""
        own = await self._take()
        try:
            reports: list[Report] = await self._index.call("exchange", own, timeout_s=TIMEOUT_S)
        except (EngineError, TimeoutError) as error:
            logger.warning("reports_unavailable", extra={"error": str(error)})
            return [own]
        return reports

    async def run(self) -> None:
        """Reports every REPORT_S seconds and measures the lag of the event loop; never returns."""
        next_report = time.monotonic()
        while True:
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + REPORT_S
                try:
                    await self._index.call("report", await self._take(), timeout_s=TIMEOUT_S)
                except (EngineError, TimeoutError):
                    pass  # ModelIndex starts after the models; the next report says as much
            due = time.monotonic() + LAG_PROBE_S
            await asyncio.sleep(LAG_PROBE_S)
            metrics.loop_lag_seconds.observe(max(time.monotonic() - due, 0.0))

    async def _take(self) -> Report:
        async with self._taking:
            return await asyncio.to_thread(self.take)


def cluster_reports(models_app: str | None = None) -> ClusterReports | None:
    """Those of this replica, or None outside of Serve. `models_app` defaults to its application."""
    try:
        context = serve.get_replica_context()
    except RayServeException:
        return None
    return ClusterReports(models_app or context.app_name, context.deployment, context.replica_tag)
