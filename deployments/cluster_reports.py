"""Sends the metrics of this replica to ModelIndex every few seconds, and asks it for all."""

import asyncio
import logging
import time
from typing import Any

from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.gateway.handles import engine_errors
from models.errors import EngineError, EngineLost
from telemetry import metrics
from telemetry.reports import OwnReports, Report

logger = logging.getLogger(__name__)

REPORT_S = 5.0
TIMEOUT_S = 1.0
LAG_PROBE_S = 0.5


class ClusterReports:
    """The metrics of this replica and, through ModelIndex, of all others."""

    def __init__(self, models_app: str, deployment: str, replica: str) -> None:
        self._models_app = models_app
        self._own = OwnReports(deployment, replica)
        self._index: DeploymentHandle[Any] | None = None
        self._taking = asyncio.Lock()  # reports are taken in order

    async def all(self) -> list[Report]:
        """All reports; only that of this process while ModelIndex does not answer."""
        own = await self._take()
        try:
            reports: list[Report] = await self._ask("exchange", own)
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
                    await self._ask("report", await self._take())
                except (EngineError, TimeoutError):
                    pass  # ModelIndex starts after the models; the next report says as much
            due = time.monotonic() + LAG_PROBE_S
            await asyncio.sleep(LAG_PROBE_S)
            metrics.loop_lag_seconds.observe(max(time.monotonic() - due, 0.0))

    async def _take(self) -> Report:
        async with self._taking:
            return await asyncio.to_thread(self._own.take)

    async def _ask(self, method: str, report: Report) -> Any:
        """Raises EngineLost or TimeoutError."""
        if self._index is None:
            self._index = await asyncio.to_thread(self._find_index)
        async with asyncio.timeout(TIMEOUT_S):
            with engine_errors("ModelIndex"):
                return await self._index.options(method_name=method).remote(report)

    def _find_index(self) -> DeploymentHandle[Any]:
        """Raises EngineLost."""
        try:
            return serve.get_deployment_handle("ModelIndex", app_name=self._models_app)
        except (KeyError, RayServeException):
            raise EngineLost(f"the application {self._models_app!r} is not deployed") from None


def cluster_reports(models_app: str | None = None) -> ClusterReports | None:
    """Those of this replica, or None outside of Serve. `models_app` defaults to its application."""
    try:
        context = serve.get_replica_context()
    except RayServeException:
        return None
    return ClusterReports(models_app or context.app_name, context.deployment, context.replica_tag)
