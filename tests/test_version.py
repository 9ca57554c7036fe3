"""The version is written in antiphon/version.py alone; everything else reads it there."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import antiphon
from antiphon.cli.main import antiphon as program
from antiphon.live import USER_AGENT
from api.mcp.server import SERVER
from configs.settings import PROJECT_DIR
from tests.openapi import document

PLACE = "antiphon/version.py"
CODE = ("antiphon", "api", "configs", "db", "deployments", "models", "pipelines", "telemetry")
FILES = (*CODE, "deploy", "Makefile", "pyproject.toml", "serve_config.yaml")


def test_every_interface_reports_the_version() -> None:
    printed = CliRunner().invoke(program, ["--version"], prog_name="antiphon")
    reported = {
        "OpenAPI": document()["info"]["version"],
        "MCP": SERVER.version,
        "User-Agent": USER_AGENT.removeprefix("antiphon/"),
        "antiphon --version": printed.output.removeprefix("antiphon ").strip(),
    }
    assert reported == dict.fromkeys(reported, antiphon.__version__)


@pytest.mark.parametrize("folder", [PROJECT_DIR, PROJECT_DIR / "antiphon"])
def test_the_distributions_have_the_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = tomllib.loads((folder / "pyproject.toml").read_text())
    assert "version" in configuration["project"]["dynamic"]
    given: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "setuptools", SimpleNamespace(setup=given.update))
    monkeypatch.chdir(folder)
    runpy.run_path("setup.py")
    assert given["version"] == antiphon.__version__


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
