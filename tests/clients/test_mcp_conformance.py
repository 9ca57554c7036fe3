"""The Model Context Protocol's own conformance suite, against `/mcp`. It takes seconds."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from configs.settings import PROJECT_DIR
from tests.api.local_server import local_settings, serve_app
from tests.api.local_services import local_services

CANNOT_RUN = 3  # of tools/mcp_conformance.sh
# All that suit any server: the others call tools, prompts and resources that only the suite's own
# example has, or what this server does not offer (logging, completion, sampling, elicitation).
SCENARIOS = (
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)


def with_key(app: ASGIApp, key: str) -> ASGIApp:
    """Adds the key to requests, since the suite sends none."""

    async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
        header = (b"authorization", f"Bearer {key}".encode())
        await app({**scope, "headers": [*scope.get("headers", ()), header]}, receive, send)

    return keyed


@pytest.mark.slow
def test_the_server_passes_all_scenarios_that_suit_any_server(tmp_path: Path) -> None:
    services = local_services(local_settings(tmp_path))
    key = asyncio.run(services.platform.accounts.ensure_first_workspace())
    assert key is not None
    app = create_app(services)
    app.add_middleware(with_key, key=key)
    with serve_app(app) as url:
        for scenario in SCENARIOS:
            folder = tmp_path / scenario
            arguments = ("server", "--url", f"{url}/mcp", "--scenario", scenario, "-o", folder)
            suite = subprocess.run(
                [PROJECT_DIR / "tools" / "mcp_conformance.sh", *arguments],
                capture_output=True,
                text=True,
                timeout=240,
            )
            if suite.returncode == CANNOT_RUN:
                pytest.skip(f"the conformance suite of MCP did NOT run: {suite.stderr.strip()}")
            (report,) = folder.rglob("checks.json")
            checks = json.loads(report.read_text())
            failed = [check for check in checks if check["status"] not in ("SUCCESS", "INFO")]
            assert checks and not failed and suite.returncode == 0, (suite.stdout, failed)
