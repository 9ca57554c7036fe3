"""Reports of processes, and the page that shows them together."""

import pickle
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

from configs import metrics
from configs.metrics_reports import REPORT_AGE, OwnReports, Report, render

ORIGIN = {"deployment", "replica"}


def every_metric() -> Iterator[Counter | Gauge | Histogram]:
    for one in vars(metrics).values():
        if isinstance(one, Counter | Gauge | Histogram):
            yield one


def report(replica: str, value: float, sequence: int = 0) -> Report:
    registry = CollectorRegistry()
    Counter("pieces_total", "Pieces", ["kind"], registry=registry).labels("a").inc(value)
    Histogram("took_seconds", "Time", registry=registry, buckets=(1, 2)).observe(value)
    return Report("Model", replica, sequence, tuple(registry.collect()))


def test_series_of_two_processes_are_told_apart() -> None:
    page, media_type = render([report("one", 1), report("two", 5)])
    assert media_type.startswith("text/plain")
    families = {family.name: family for family in parse(page.decode())}
    pieces = {one.labels["replica"]: one.value for one in families["pieces"].samples}
    assert pieces == {"one": 1, "two": 5}
    assert {one.labels["kind"] for one in families["pieces"].samples} == {"a"}
    assert page.count(b"# TYPE pieces_total counter") == 1


def test_the_page_is_open_metrics_when_asked() -> None:
    page, media_type = render([report("one", 1)], "application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert {"pieces", "took_seconds", REPORT_AGE} == {
        family.name
        for family in parse_open(page.decode())  # type: ignore[no-untyped-call]
    }


def test_a_report_survives_the_process_boundary() -> None:
    copy = pickle.loads(pickle.dumps(report("one", 3)))
    assert render([copy]) == render([report("one", 3)])


def test_reports_of_one_process_are_in_order() -> None:
    own = OwnReports("Model", "one")
    assert own.take().sequence < own.take().sequence


def test_a_histogram_that_saw_nothing_is_left_out() -> None:
    own = OwnReports()
    metrics.kept_deleted.labels("test").inc()
    names = {family.name for family in own.take().families}
    assert "antiphon_kept_deleted" in names
    metrics.housekeeping_seconds.observe(0.1)
    assert "antiphon_housekeeping_seconds" in {f.name for f in own.take().families}


@pytest.mark.parametrize("metric", list(every_metric()), ids=lambda one: one._name)
def test_names_and_labels_are_ours(metric: Counter | Gauge | Histogram) -> None:
    assert metric._name.startswith("antiphon_")
    assert not ORIGIN & set(metric._labelnames)
    assert not {"workspace", "user", "key", "text", "voice", "path"} & set(metric._labelnames)


def test_no_metric_carries_one_name_twice() -> None:
    names = [one._name for one in every_metric()]
    assert len(names) == len(set(names))
