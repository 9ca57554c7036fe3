"""The Grafana dashboard, as code: `python -m telemetry.dashboard` writes its JSON anew."""

import json
from pathlib import Path
from typing import Any

from telemetry.panels import ROWS, Panel

PATH = Path(__file__).with_name("dashboard.json")
COLUMNS, WIDTH, HEIGHT = 3, 8, 7  # a row of Grafana is 24 wide
SOURCE = {"type": "prometheus", "uid": "${source}"}


def build() -> dict[str, Any]:
    """What Grafana imports; it asks which Prometheus to use."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": COLUMNS * WIDTH, "h": 1}
        panels.append({"type": "row", "title": row.title, "gridPos": place, "panels": []})
        y += 1
        for number, panel in enumerate(row.panels):
            x, line = number % COLUMNS * WIDTH, number // COLUMNS
            place = {"x": x, "y": y + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            panels.append(_graph(panel) | {"gridPos": place})
        y += -(-len(row.panels) // COLUMNS) * HEIGHT
    for number, made in enumerate(panels, 1):
        made["id"] = number
    return {
        "uid": "antiphon",
        "title": "Antiphon",
        "tags": ["antiphon"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
            ]
        },
        "panels": panels,
    }


def _graph(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend}
        for number, (legend, query) in enumerate(panel.queries.items())
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def render() -> str:
    """The JSON text of the file."""
    return json.dumps(build(), indent=2) + "\n"


if __name__ == "__main__":
    PATH.write_text(render(), encoding="utf-8")
