"""Every page of the console in four sizes, light and dark, by Playwright and axe."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.api.local_server import OPERATOR_TOKEN, Server
from tests.clients.node_clients import NodeClients
from tests.clients.registry_clients import PYTHON, RegistryClients

APPEARANCE = Path(__file__).with_name("console_appearance.py")
CONTENTS = Path(__file__).with_name("console_contents.py")
RUN_S = 400.0
FIRST_BYTES = 120_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def playwright(registry_clients: RegistryClients) -> RegistryClients:
    """Runs scripts with Playwright. Skips without it or Chromium."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("Chromium is not installed, so the console was NOT looked at")
    if subprocess.run([PYTHON, "-c", "import playwright"], capture_output=True).returncode:
        pytest.skip("`make clients` has not installed playwright: the console was NOT looked at")
    return registry_clients


@pytest.fixture(scope="module")
def seen(
    tone_server: Server, playwright: RegistryClients, node_clients: NodeClients
) -> dict[str, Any]:
    """What the script saw. Skips without axe."""
    axe = str(node_clients.package("axe-core") / "axe.min.js")
    found: dict[str, Any] = playwright.run(
        APPEARANCE, tone_server.url, tone_server.key, OPERATOR_TOKEN, axe, timeout_s=RUN_S
    )
    return found


def test_long_content_is_reached_on_every_page(
    tone_server: Server, playwright: RegistryClients
) -> None:
    lost = playwright.run(
        CONTENTS, tone_server.url, tone_server.key, OPERATOR_TOKEN, timeout_s=RUN_S
    )
    assert lost == {}, json.dumps(lost, indent=1, ensure_ascii=False)


def test_axe_finds_no_violation(seen: dict[str, Any]) -> None:
    assert seen["violations"] == [], json.dumps(seen["violations"], indent=1)


def test_no_page_logs_an_error_or_has_a_broken_layout(seen: dict[str, Any]) -> None:
    assert [seen["errors"], seen["wide"]] == [[], []]


def test_the_job_of_a_page_and_its_errors_are_in_sight(seen: dict[str, Any]) -> None:
    assert seen["below"] == []


def test_work_goes_on_after_a_lost_network_and_over_a_slow_one(seen: dict[str, Any]) -> None:
    assert seen["cut"] == [True, "Kept without a network."]
    assert seen["slow"] is True


def test_little_is_loaded_before_the_first_use(seen: dict[str, Any]) -> None:
    assert 0 < seen["bytes"] < FIRST_BYTES
