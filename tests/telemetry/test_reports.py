"""Metric reports of processes, and the page that renders them together."""

import ast
import pickle
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families as parse

from configs.settings import PROJECT_DIR
from telemetry import metrics
from telemetry.reports import REPORT_AGE, OwnReports, Report, render

ORIGIN = {"deployment", "replica"}


def every_metric() -> Iterator[Counter | Gauge | Histogram]:
    for one in vars(metrics).values():
        if isinstance(one, Counter | Gauge | Histogram):
            yield one


def report(replica: str, value: float) -> Report:
    registry = CollectorRegistry()
    Counter("pieces_total", "Pieces\nof cake", ["kind"], registry=registry).labels("a").inc(value)
    Histogram("took_seconds", "Time", registry=registry, buckets=(1, 2)).observe(value)
    Histogram("never_seconds", "Time", registry=registry)
    return OwnReports(Report("Model", replica, 0, {}), registry).take()


def test_series_of_two_processes_differ_in_the_replica_label() -> None:
    page = render([report("one", 1), report("two", 5)]).decode()
    families = {family.name: family for family in parse(page)}
    assert set(families) == {"pieces", "took_seconds", REPORT_AGE}
    pieces = {one.labels["replica"]: one.value for one in families["pieces"].samples}
    assert pieces == {"one": 1, "two": 5}
    assert {one.labels["kind"] for one in families["pieces"].samples} == {"a"}
    assert {one.labels["deployment"] for one in families["took_seconds"].samples} == {"Model"}
    assert page.count("# TYPE pieces_total counter\n") == 1
    assert page.endswith("\n") and "\n\n" not in page


def test_a_report_has_histogram_buckets_and_escaped_help_text() -> None:
    page = render([report("one", 3)]).decode()
    assert 'took_seconds_bucket{deployment="Model",le="+Inf",replica="one"} 1.0' in page
    assert "Pieces\\nof cake" in page


def test_a_pickled_report_renders_the_same_page() -> None:
    made = report("one", 3)
    assert render([pickle.loads(pickle.dumps(made))]) == render([made])


def test_reports_of_one_process_have_increasing_sequence_numbers() -> None:
    own = OwnReports(Report("Model", "one", 0, {}))
    assert own.take().sequence < own.take().sequence


def test_a_report_has_the_metrics_that_have_a_value() -> None:
    own = OwnReports()
    metrics.kept_deleted.labels("test").inc()
    assert "antiphon_kept_deleted_total" in own.take().families
    metrics.housekeeping_seconds.observe(0.1)
    assert "antiphon_housekeeping_seconds" in own.take().families


@pytest.mark.parametrize("metric", list(every_metric()), ids=lambda one: one._name)
def test_metrics_are_prefixed_and_have_no_user_labels(metric: Counter | Gauge | Histogram) -> None:
    assert metric._name.startswith("antiphon_")
    assert not ORIGIN & set(metric._labelnames)
    assert not {"workspace", "user", "key", "text", "voice", "path"} & set(metric._labelnames)


def test_metric_names_are_unique() -> None:
    names = [one._name for one in every_metric()]
    assert len(names) == len(set(names))


def test_every_metric_is_used_in_the_source_and_no_other() -> None:
    layers = ("api", "db", "deployments", "models", "pipelines")
    files = (file for layer in layers for file in (PROJECT_DIR / layer).rglob("*.py"))
    used = {
        node.attr
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "metrics"
    }
    kinds = Counter | Gauge | Histogram
    ours = {name for name, one in vars(metrics).items() if isinstance(one, kinds)}
    assert ours and not ours - used and not used - vars(metrics).keys()
