"""Writes docs/compatibility.md from the results of the client tests (`make compatibility`).

Arguments: JUnit files of pytest; the last result of a test counts. `compatibility.yaml` says which
tests show which feature.
"""

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compatibility.md"
TABLE: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_suffix(".yaml").read_text()
)
WORKS, FAILS, UNTRIED = "works", "**fails**", "not tried"
OPENING = (
    "# Compatibility\n\n"
    "The tests run unmodified clients, at the versions below, against the service. "
    "`make compatibility` writes this page. *Not tried* means that the tests did not run. "
    "*Answer types* means that every answer and event has the fields and types that the "
    "client's own models require."
)


def locked_versions(npm: Mapping[str, str]) -> dict[str, str]:
    """Versions by client, from uv.lock and the packages of `npm`."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    python = {package["name"]: package.get("version", "") for package in packages}
    return {
        f"{api} {name}": npm[client["npm"]] if "npm" in client else python[client["package"]]
        for api, clients in TABLE.items()
        for name, client in clients.items()
    }


def outcome(tests: str, results: Mapping[str, str]) -> str:
    """The combined result of all tests whose file and name begin with `tests`."""
    seen = {result for test, result in results.items() if test.startswith(tests)} or {UNTRIED}
    return next(result for result in (FAILS, WORKS, UNTRIED) if result in seen)


def read_results(path: Path) -> dict[str, str]:
    results: dict[str, str] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.py::{case.get('name')}"
        kinds = {child.tag for child in case}
        results[name] = FAILS if kinds & {"failure", "error"} else WORKS
        if "skipped" in kinds:
            results[name] = UNTRIED
    return results


def write_page(results: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """The page, with a table per API and a row per client."""
    parts = [OPENING]
    for api, clients in TABLE.items():
        features = list(
            dict.fromkeys(name for each in clients.values() for name in each["features"])
        )
        parts += ["", f"## {api}", "", f"| client | version | {' | '.join(features)} |"]
        parts += ["|---" * (2 + len(features)) + "|"]
        for name, client in clients.items():
            tests = (client["features"].get(feature) for feature in features)
            cells = ("" if test is None else outcome(test, results) for test in tests)
            parts += [f"| {name} | {versions[f'{api} {name}']} | {' | '.join(cells)} |"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    from tests.clients.node_clients import PACKAGES

    results: dict[str, str] = {}
    for path in sys.argv[1:]:
        results |= read_results(Path(path))
    PAGE.write_text(write_page(results, locked_versions(PACKAGES)))
