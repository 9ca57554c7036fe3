"""The root of the application `models`: says which deployments there are, and of what kind.

It also keeps what each process of the cluster counted last, so that one page can show them all.
"""

import time
from dataclasses import replace
from typing import Any

from ray.serve.handle import DeploymentHandle

from configs.schema.serve import ModelsArgs
from telemetry.reports import Report

FORGET_S = 30.0  # after so long without a report, a process is gone


class ModelIndex:
    """The gateway asks it every few seconds, so a model added to the YAML needs no restart."""

    def __init__(self, args: ModelsArgs, *deployments: DeploymentHandle[Any]) -> None:
        self._args = args
        self._deployments = deployments  # holds them in this application's graph
        self._reports = LastReports()

    def deployed(self) -> ModelsArgs:
        return self._args

    async def report(self, report: Report) -> None:
        """Takes what a process has counted."""
        self._reports.put(report)

    async def exchange(self, report: Report) -> list[Report]:
        """Takes the caller's own, and gives the last of all processes."""
        self._reports.put(report)
        return self._reports.all()


class LastReports:
    """The newest report of each process, until it was silent for FORGET_S."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], tuple[float, Report]] = {}

    def put(self, report: Report) -> None:
        """An older one than is known is dropped: a counter must never seem to go back."""
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
