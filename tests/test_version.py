"""The version is written in antiphon/version.py alone; everything else reads it there."""

import re
import subprocess
import tomllib

from click.testing import CliRunner

import antiphon
from antiphon.live import USER_AGENT
from api.app import routed_app
from api.mcp.server import SERVER
from configs.settings import PROJECT_DIR
from deployments.cli.main import antiphon as program

PLACE = "antiphon/version.py"
CODE = ("antiphon", "api", "configs", "db", "deployments", "models", "pipelines", "telemetry")
FILES = (*CODE, "deploy", "Makefile", "pyproject.toml", "serve_config.yaml")


def test_every_interface_reports_the_version() -> None:
    printed = CliRunner().invoke(program, ["--version"], prog_name="antiphon")
    reported = {
        "OpenAPI": routed_app().openapi()["info"]["version"],
        "MCP": SERVER.version,
        "User-Agent": USER_AGENT.removeprefix("antiphon/"),
        "antiphon --version": printed.output.removeprefix("antiphon ").strip(),
    }
    assert reported == dict.fromkeys(reported, antiphon.__version__)


def test_the_distribution_has_the_version() -> None:
    configuration = tomllib.loads((PROJECT_DIR / "pyproject.toml").read_text())
    assert configuration["project"]["dynamic"] == ["version"]
    dynamic = configuration["tool"]["setuptools"]["dynamic"]
    assert dynamic["version"] == {"attr": "antiphon.version.__version__"}


def test_no_other_file_writes_the_version() -> None:
    # Pins of packages, such as `name==1.0.0`, are versions of others.
    pattern = re.compile(rf"(?<![=\w.]){re.escape(antiphon.__version__)}(?![\w.])")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FILES]
    listed = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, check=True)
    places = [
        path
        for path in listed.stdout.splitlines()
        if pattern.search((PROJECT_DIR / path).read_bytes().decode(errors="ignore"))
    ]
    assert places == [PLACE]
