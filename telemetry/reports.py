"""Metrics of one process, and the page with those of many processes. Each process formats its own
lines, so that a gateway only joins them: formatting thousands of samples would block its event
loop."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry, Gauge, Metric, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from telemetry.metrics import REGISTRY, SHOWN_EMPTY

REPORT_AGE = "antiphon_report_age_seconds"
MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OPEN_METRICS = openmetrics.CONTENT_TYPE_LATEST
_HELP = "# HELP "
_EXEMPLAR = re.compile(r" # \{.*")


@dataclass(frozen=True, slots=True)
class Report:
    """All metrics of one process at one time. Sent between processes."""

    deployment: str
    replica: str
    sequence: int  # increases with each report of a process
    families: Mapping[str, tuple[str, str]]  # HELP and TYPE lines, and samples, by name
    age_s: float = 0.0  # time since it was taken
    problem: str = ""  # why this process serves another model than its configuration names
    node: str = ""  # address of its machine in the cluster
    release: str = ""  # digest of its code and configurations
    missing: tuple[str, ...] = ()  # switches of Ray that its machine was started without


@dataclass(slots=True)
class OwnReports:
    """Source of reports for the metrics page of a single process."""

    process: Report = Report("local", "local", 0, {})  # template of each report
    source: Collector = REGISTRY
    _sequence: Iterator[int] = field(default_factory=itertools.count)

    def take(self) -> Report:
        """Collects all metrics of this process, except empty histograms that it did not declare.
        Takes milliseconds. Each series gets the labels `deployment` and `replica`."""
        sequence = next(self._sequence)
        origin = {"deployment": self.process.deployment, "replica": self.process.replica}
        source = _LabelledCollector(self.source, origin)
        text = openmetrics.generate_latest(source).decode()  # type: ignore[no-untyped-call]
        text = text.removesuffix("# EOF\n")
        families = dict(_family(block) for block in text.removeprefix(_HELP).split(f"\n{_HELP}"))
        return replace(self.process, sequence=sequence, families=families)

    async def all(self) -> list[Report]:
        """Returns one report per process that reported lately, including this one. Never fails."""
        return [self.take()]


def render(reports: Iterable[Report], media_type: str = MEDIA_TYPE) -> bytes:
    """Renders the page; families of the same name are joined, as the format requires. Only
    OPEN_METRICS has exemplars, and omits `_total` from counters' HELP and TYPE lines."""
    registry = CollectorRegistry()
    text = "Time since a process reported its metrics"
    ages = Gauge(REPORT_AGE, text, ("deployment", "replica"), registry=registry)
    heads: dict[str, str] = {}
    samples: defaultdict[str, list[str]] = defaultdict(list)
    for report in reports:
        ages.labels(report.deployment, report.replica).set(report.age_s)
        for name, (head, lines) in report.families.items():
            heads.setdefault(name, head)
            samples[name].append(lines)
    parts = [generate_latest(registry).decode()]
    for name, head in heads.items():
        if media_type == OPEN_METRICS:
            head = head.replace(f" {name} ", f" {name.removesuffix('_total')} ")
        parts += [head, *samples[name]]
    page = "".join(parts)
    if media_type == OPEN_METRICS:
        return f"{page}# EOF\n".encode()
    return (_EXEMPLAR.sub("", page) if " # {" in page else page).encode()


@dataclass(frozen=True, slots=True)
class _LabelledCollector(Collector):
    """Collector that adds labels to the metric families of another collector."""

    source: Collector
    labels: dict[str, str]

    def collect(self) -> Iterable[Metric]:
        for family in filter(_has_samples, self.source.collect()):
            labelled = Metric(family.name, family.documentation, family.type)
            for sample in family.samples:
                labels = {**sample.labels, **self.labels}
                labelled.add_sample(sample.name, labels, sample.value, exemplar=sample.exemplar)
            yield labelled


def _family(block: str) -> tuple[str, tuple[str, str]]:
    """Parses a block: the metric's name, its HELP and TYPE lines as in MEDIA_TYPE, its samples."""
    help_line, type_line, lines = block.split("\n", 2)
    name, _, text = help_line.partition(" ")
    kind = type_line.rpartition(" ")[2]
    name += "_total" if kind == "counter" else ""
    return name, (f"{_HELP}{name} {text}\n# TYPE {name} {kind}\n", f"{lines.rstrip()}\n")


def _has_samples(family: Metric) -> bool:
    """Whether a metric has samples. Most processes use few metrics; a histogram takes 15 lines."""
    if family.type != "histogram" or family.name in SHOWN_EMPTY:
        return bool(family.samples)
    return any(sample.value for sample in family.samples)
