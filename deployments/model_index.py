"""The root of the application `models`: the list of its deployments, by kind.

It also keeps the last metrics of each process of the cluster, for the one page of `GET /metrics`.
"""

import time
from dataclasses import replace
from typing import Any

from ray.serve.handle import DeploymentHandle

from configs.schema.serve import ModelsArgs
from telemetry.reports import Report

FORGET_S = 30.0  # a process without a report for so long is gone


class ModelIndex:
    """Gateways poll it every few seconds, so that a model added to the YAML needs no restart."""

    def __init__(self, args: ModelsArgs, *deployments: DeploymentHandle[Any]) -> None:
        self._args = args
        self._deployments = deployments  # holds them in this application's graph
        # By deployment and replica, with the time when it came.
        self._reports: dict[tuple[str, str], tuple[float, Report]] = {}

    def deployed(self) -> ModelsArgs:
        return self._args

    async def report(self, report: Report) -> None:
        """Stores the metrics of a process, unless newer ones are known: no counter may decrease."""
        name = (report.deployment, report.replica)
        known = self._reports.get(name)
        if known is None or known[1].sequence < report.sequence:
            self._reports[name] = (time.monotonic(), report)

    async def exchange(self, report: Report) -> list[Report]:
        """Stores those of the caller; returns the last of each process, with its age."""
        await self.report(report)
        now = time.monotonic()
        self._reports = {
            name: kept for name, kept in self._reports.items() if now - kept[0] <= FORGET_S
        }
        return [replace(kept, age_s=now - since) for since, kept in self._reports.values()]
