"""All Prometheus metrics, as attributes of this module; `metrics.yaml` defines them. Each process
has its own counts. `GET /metrics` shows those of all processes, and adds the labels `deployment`
and `replica` to each series, so no metric may have a label of that name."""

from itertools import product
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from configs.load import load_yaml
from telemetry.tracing import note

# The `_created` series would be an unused second series of each metric.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY = CollectorRegistry(auto_describe=True)
"""Registry of this service's metrics; libraries use prometheus-client's default one."""

ProcessCollector(namespace="antiphon", registry=REGISTRY)


class _TracedHistogram(Histogram):
    """Histogram whose samples within a span become events of the span, and exemplars."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        super().observe(amount, exemplar or note(self._name.removeprefix("antiphon_"), amount))


_KINDS: dict[str, type[Counter | Gauge | Histogram]] = {
    "counter": Counter,
    "gauge": Gauge,
    "histogram": _TracedHistogram,
}


def _metric(attribute: str, entry: dict[str, Any], bins: dict[str, Any]) -> Any:
    (kind,) = _KINDS.keys() & entry.keys()
    options: dict[str, Any] = {"labelnames": tuple(entry.get("labels", ())), "registry": REGISTRY}
    if kind == "histogram":
        edges = entry.get("bins", "latency")
        options["buckets"] = bins.get(edges) if isinstance(edges, str) else edges
    return _KINDS[kind](f"antiphon_{entry.get('name', attribute)}", entry[kind], **options)


SHOWN_EMPTY: set[str] = set()
"""Names of histograms that a report has before their first sample."""


def declare(*kinds: str) -> None:
    """Exposes known series from the start of a process of these kinds. `rate()` sees no increase in
    the first sample of a new series."""
    for kind in ("every", *kinds):
        for part in _FILE["processes"][kind]:
            for name in [part] if isinstance(part, str) else part:
                metric = globals()[name]
                labels = _FILE["metrics"][name].get("labels")
                SHOWN_EMPTY.add(metric._name)
                if isinstance(labels, dict):
                    for values in product(*labels.values()):
                        metric.labels(*values)


def __getattr__(name: str) -> Any:
    """Satisfies type checkers, which do not read metrics.yaml; a test checks the names in use."""
    raise AttributeError(f"metrics.yaml has no {name}")


_FILE = load_yaml(dict[str, dict[str, Any]], str(Path(__file__).with_name("metrics.yaml")))
globals().update(
    {name: _metric(name, entry, _FILE["bins"]) for name, entry in _FILE["metrics"].items()}
)
