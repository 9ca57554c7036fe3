"""The root of the application `models`, and the metrics that other processes report. ModelIndex
lists the deployments of models by kind, stores the last metrics of each process of the cluster for
`GET /metrics`, and counts requests and sockets for all gateways if there is no Redis."""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from configs.schema.serve import ModelsArgs
from deployments.cluster.compat import keep_replica_on_loopback
from deployments.cluster.release import differences, missing_switches, release
from deployments.cluster.user_config import NoUserConfig
from deployments.gateway.handles import Deployed, ModelIndexHandle
from models.base import ModelInfo
from models.errors import EngineError
from pipelines.limits.cluster import RequestCounter
from pipelines.ports import Arrival
from telemetry import metrics
from telemetry.logs import setup_logs
from telemetry.reports import OwnReports, Report

logger = logging.getLogger(__name__)

FORGET_S = 30.0  # metrics of a process without a report for this long are dropped
REPORT_S = 5.0
TIMEOUT_S = 1.0
LAG_PROBE_S = 0.5
UNKNOWN_S = 60.0  # by then, the models of `make run` are loaded and have reported


class ModelIndex(NoUserConfig, RequestCounter):
    """A deployment with one replica, which lists models and counts for all gateways. Gateways poll
    it every few seconds, so that a model added to the YAML needs no restart. If it dies, its counts
    are lost: windows begin again, and leases are renewed."""

    def __init__(self, args: ModelsArgs, *deployments: DeploymentHandle[Any]) -> None:
        keep_replica_on_loopback()
        setup_logs()
        metrics.declare()
        super().__init__()
        self._args = args
        self._deployments = deployments  # makes them part of this application's graph
        self._models: dict[str, ModelInfo] = {}  # by deployment; outlives its replicas
        self._arrivals: dict[str, Arrival] = {}  # by deployment
        self._asking: asyncio.Task[None] | None = None
        # Reports by deployment and replica, with their times of arrival.
        self._reports: dict[tuple[str, str], tuple[float, Report]] = {}

    async def deployed(self) -> Deployed:
        self._asking = self._asking or asyncio.create_task(self._ask_unknown())
        late = time.monotonic() - FORGET_S
        reports = [report for since, report in self._reports.values() if since >= late]
        problems = {report.deployment: report.problem for report in reports if report.problem}
        differing = differences(reports)
        return Deployed(self._args, problems, differing, self._models, self._arrivals)

    async def expect(self, deployment: str, arrival: Arrival | None) -> None:
        """Store what will replace the model of a deployment; None once that has arrived."""
        self._arrivals.pop(deployment, None)
        metrics.model_missing_bytes.clear()
        if arrival is not None:
            self._arrivals[deployment] = arrival
            missing = arrival.size_bytes - arrival.got_bytes
            metrics.model_missing_bytes.labels(arrival.model).set(missing)

    async def _ask_unknown(self) -> None:
        """Load the models that were scaled to zero before this process began, so that they report
        their descriptions and can be listed."""
        await asyncio.sleep(UNKNOWN_S)
        unknown = [
            handle for handle in self._deployments if handle.deployment_name not in self._models
        ]
        await asyncio.gather(
            *(handle.describe.remote() for handle in unknown), return_exceptions=True
        )

    async def report(self, report: Report, model: ModelInfo | None = None) -> None:
        """Store a process's report, unless a newer one is stored, so that no counter decreases."""
        name = (report.deployment, report.replica)
        last = self._reports.get(name)
        if last is None or last[1].sequence < report.sequence:
            self._reports[name] = (time.monotonic(), report)
            stored = self._models.get(report.deployment)
            if model is not None and (model.is_loaded or stored is None or not stored.is_loaded):
                self._models[report.deployment] = model

    async def exchange(self, report: Report) -> list[Report]:
        """Store the caller's metrics; return the last report of each process, with its age."""
        await self.report(report)
        now = time.monotonic()
        self._reports = {
            name: kept for name, kept in self._reports.items() if now - kept[0] <= FORGET_S
        }
        return [replace(kept, age_s=now - since) for since, kept in self._reports.values()]


class ClusterReports(OwnReports):
    """The metrics of this replica and, through ModelIndex, of all others."""

    def __init__(self, models_app: str, deployment: str, replica: str) -> None:
        node = ray.util.get_node_ip_address()
        super().__init__(Report(deployment, replica, 0, {}, node=node, missing=missing_switches()))
        self.model: ModelInfo | None = None  # set in the replica of a model
        self._index = ModelIndexHandle(models_app)
        self._taking = asyncio.Lock()  # keeps reports in order

    async def all(self) -> list[Report]:
        """Return all reports, or only this process's own while ModelIndex does not answer."""
        own = await self._take()
        try:
            reports: list[Report] = await self._index.call("exchange", own, timeout_s=TIMEOUT_S)
        except EngineError as error:
            logger.warning("reports_unavailable", extra={"error": str(error)})
            return [own]
        return reports

    async def send(self) -> None:
        """Report now, if ModelIndex answers."""
        with suppress(EngineError):  # the next report is cumulative
            await self._index.call("report", await self._take(), self.model, timeout_s=TIMEOUT_S)

    async def run(self) -> None:
        """Report every REPORT_S seconds and measure the lag of the event loop; never returns."""
        next_report = time.monotonic()
        while True:
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + REPORT_S
                await self.send()
            due = time.monotonic() + LAG_PROBE_S
            await asyncio.sleep(LAG_PROBE_S)
            metrics.loop_lag_seconds.observe(max(time.monotonic() - due, 0.0))

    async def _take(self) -> Report:
        async with self._taking:
            digest = self.process.release or await asyncio.to_thread(release)
            self.process = replace(self.process, release=digest)
            return await asyncio.to_thread(self.take)


def cluster_reports(models_app: str | None = None) -> ClusterReports | None:
    """Return the reports of this replica; None outside of Serve. `models_app` defaults to the
    replica's application."""
    try:
        context = serve.get_replica_context()
    except RayServeException:
        return None
    return ClusterReports(models_app or context.app_name, context.deployment, context.replica_tag)
