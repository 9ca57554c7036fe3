"""What one process has counted, and the page that shows many of them together."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from configs.metrics import REGISTRY

REPORT_AGE = "antiphon_report_age_seconds"


@dataclass(frozen=True, slots=True)
class Report:
    """All metrics of one process at one time. Crosses processes."""

    deployment: str
    replica: str
    sequence: int  # a later report of the same process has a greater one
    families: tuple[Metric, ...]
    age_s: float = 0.0  # since it was taken, as far as is known


class Reports(Protocol):
    """Where the page gets its reports from."""

    async def all(self) -> list[Report]:
        """One a process that reported lately, this one included. Never fails."""
        ...


@dataclass(slots=True)
class OwnReports:
    """Reports of this process alone."""

    deployment: str = "local"
    replica: str = "local"
    _sequence: Iterator[int] = field(default_factory=itertools.count)

    def take(self) -> Report:
        """What was counted until now; histograms that saw nothing are left out."""
        families = tuple(family for family in REGISTRY.collect() if _says_something(family))
        return Report(self.deployment, self.replica, next(self._sequence), families)

    async def all(self) -> list[Report]:
        return [self.take()]


def render(reports: Iterable[Report], accept: str = "") -> tuple[bytes, str]:
    """The page and its media type, in the format that `accept` (a header) asks for; blocking.

    Each series gets the labels `deployment` and `replica`.
    """
    encode, media_type = choose_encoder(accept)
    return encode(_Page(reports)), media_type


class _Page(Collector):
    """Families of the same name as one, as the formats want it."""

    def __init__(self, reports: Iterable[Report]) -> None:
        ages = Metric(REPORT_AGE, "Time since a process told its numbers", "gauge")
        self._families = {ages.name: ages}
        for report in reports:
            origin = {"deployment": report.deployment, "replica": report.replica}
            ages.add_sample(ages.name, origin, report.age_s)
            for family in report.families:
                self._add(family, origin)

    def _add(self, family: Metric, origin: dict[str, str]) -> None:
        merged = self._families.get(family.name)
        if merged is None:
            merged = Metric(family.name, family.documentation, family.type)
            self._families[family.name] = merged
        for sample in family.samples:
            merged.add_sample(sample.name, {**sample.labels, **origin}, sample.value)

    def collect(self) -> Iterable[Metric]:
        return self._families.values()


def _says_something(family: Metric) -> bool:
    """Most processes use a few of the metrics; a histogram is some fifteen lines."""
    if family.type != "histogram":
        return bool(family.samples)
    return any(sample.value for sample in family.samples)
