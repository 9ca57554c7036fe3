"""The dashboard and the alerts use metrics and labels that exist."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from api.http.middleware import QUIET_PATHS
from configs.settings import PROJECT_DIR
from telemetry import metrics
from telemetry.reports import REPORT_AGE

FOLDER = Path(metrics.__file__).parent
PANELS: list[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
ADDED = {"deployment", "replica"}
RESTART_S = 180
_SERIES = re.compile(r"\b(antiphon_\w+)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


def labels_of() -> dict[str, set[str]]:
    """Every series that the metrics page can have, with its labels."""
    known = {REPORT_AGE: ADDED}
    for one in vars(metrics).values():
        if isinstance(one, Histogram):
            labels = set(one._labelnames) | ADDED
            known |= {f"{one._name}_bucket": labels | {"le"}}
            known |= {f"{one._name}_{part}": labels for part in ("sum", "count")}
        elif isinstance(one, Counter):
            known[f"{one._name}_total"] = set(one._labelnames) | ADDED
        elif isinstance(one, Gauge):
            known[one._name] = set(one._labelnames) | ADDED
    for family in metrics.REGISTRY.collect():
        if family.name.startswith("antiphon_process_"):
            known |= {sample.name: ADDED for sample in family.samples}
    return known


def check(query: str) -> set[str]:
    """Asserts that the metrics and labels of `query` exist; returns the labels of its result."""
    known = labels_of()
    series = _SERIES.findall(query)
    assert series, query
    grouped = {label.strip() for group in _GROUPED.findall(query) for label in group.split(",")}
    for name, matchers in series:
        assert name in known, name
        used = set(re.findall(r"(\w+)\s*[=!]~?", matchers)) | grouped
        assert used <= known[name], (name, used - known[name])
    assert query.count("(") == query.count(")")
    return grouped


def queries() -> Iterator[tuple[str, str]]:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            yield target["legendFormat"], target["expr"]


@pytest.mark.parametrize(("legend", "query"), list(queries()))
def test_every_dashboard_query_uses_existing_metrics_and_labels(legend: str, query: str) -> None:
    assert set(_LEGEND.findall(legend)) <= check(query)


def rules() -> list[dict[str, object]]:
    text = (FOLDER / "alerts.yaml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_uses_existing_metrics_and_has_a_summary(rule: dict[str, object]) -> None:
    query = str(rule["expr"])
    grouped = check(query) if "antiphon_" in query else set()
    annotations = rule["annotations"]
    assert isinstance(annotations, dict) and annotations["summary"]
    assert set(re.findall(r"\$labels\.(\w+)", annotations["summary"])) <= grouped
    assert rule["labels"] in ({"severity": "page"}, {"severity": "ticket"})


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[duration[-1]]


def test_no_page_at_a_restart() -> None:
    """Probes are 503 during a start; sessions are drained, and models load, for minutes."""
    pages = {rule["alert"]: rule for rule in rules() if rule["labels"] == {"severity": "page"}}
    fails = pages["RequestsFail"]
    query = str(fails["expr"])
    routes = re.findall(r'route!~"([^"]*)"', query)
    names = [name for name, _ in _SERIES.findall(query)]
    assert len(routes) == names.count("antiphon_http_requests_total") == 2
    for pattern in routes:
        assert all(re.fullmatch(pattern, path) for path in QUIET_PATHS)
        assert not re.fullmatch(pattern, "/v1/chat/completions")
    # Failures of a restart remain in the window of the rate after they have ended.
    (window,) = {seconds(window) for window in re.findall(r"\[(\w+)\]", query)}
    assert seconds(str(fails["for"])) - window >= RESTART_S
    for name in ("NothingToScrape", "ModelDown"):
        assert seconds(str(pages[name]["for"])) >= RESTART_S


def test_the_alerts_are_those_that_the_documentation_names() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (PROJECT_DIR / "docs").glob("*.md")]
    (row,) = [line for page in pages for line in page.splitlines() if "| `alerts.yaml` |" in line]
    names = {rule["alert"] for rule in rules()}
    assert set(re.findall(r"`([A-Z]\w+)`", row)) == names
    assert {name for page in pages for name in re.findall(r"alert `(\w+)`", page)} <= names


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for _, query in queries() for name, _ in _SERIES.findall(query)}
    for name in labels_of():
        if name.startswith("antiphon_process_"):
            continue
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert {name, f"{base}_bucket"} & shown, name


def shown_series() -> set[str]:
    """The series of the dashboard and of the alerts."""
    texts = [query for _, query in queries()] + [str(rule["expr"]) for rule in rules()]
    return {name for text in texts for name, _ in _SERIES.findall(text)}


# Their labels name a route, a model, a deployment or a volume, which the process knows once it
# serves.
KNOWN_LATER = {
    *("http_requests", "http_request_duration_seconds", "calls", "call_first_answer_seconds"),
    *("models_ready", "engine_requests", "model_swap_failed", "model_load_seconds"),
    *("chat_fallbacks", "canary_share", "decoder_sandbox", "model_missing_bytes"),
    *("volume_free_bytes", "volume_floor_bytes"),
}


def test_what_the_dashboard_and_the_alerts_show_is_declared_at_the_start() -> None:
    program = (
        "import sys\n"
        "from telemetry import metrics\n"
        "from telemetry.reports import OwnReports, render\n"
        "metrics.declare(sys.argv[1])\n"
        "sys.stdout.write(render([OwnReports().take()]).decode())\n"
    )
    exist = set()
    for kind in ("gateway", "tts", "stt", "chat", "embedding", "worker"):
        command = [sys.executable, "-c", program, kind]
        page = subprocess.run(command, cwd=PROJECT_DIR, check=True, capture_output=True, text=True)
        families = text_string_to_metric_families(page.stdout)
        exist |= {sample.name for family in families for sample in family.samples}
    ends = r"_(total|bucket|sum|count)$"
    missing = {re.sub(ends, "", name) for name in shown_series() - exist}
    assert missing == {f"antiphon_{name}" for name in KNOWN_LATER}


def test_dashboard_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
