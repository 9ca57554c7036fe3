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
        self._reports = LastReports()

    def deployed(self) -> ModelsArgs:
        return self._args

    async def report(self, report: Report) -> None:
        """Stores the metrics of a process."""
        self._reports.put(report)

    async def exchange(self, report: Report) -> list[Report]:
        """Stores those of the caller; returns the last of all processes."""
        self._reports.put(report)
        return self._reports.all()


class LastReports:
    """The newest report of each process; forgotten after FORGET_S without another."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[float, Report]] = {}

    def put(self, report: Report) -> None:
        """Drops a report older than the known one: a counter must never seem to decrease."""
        name = (report.deployment, report.replica)
        known = self._last.get(name)
        if known is None or known[1].sequence < report.sequence:
            self._last[name] = (time.monotonic(), report)

    def all(self) -> list[Report]:
        now = time.monotonic()
        for name, (since, _) in list(self._last.items()):
            if now - since > FORGET_S:
                del self._last[name]
        return [replace(report, age_s=now - since) for since, report in self._last.values()]
