"""Third-party Python clients, run as scripts in an environment of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-clients"
PYTHON = ENVIRONMENT / "bin" / "python"
LOCK = ROOT / "uv.lock"
TIMEOUT_S = 90.0


def require_clients() -> None:
    """Skip the test, with the command to run, where the locked packages are not installed."""
    stamp = ENVIRONMENT / ".installed-clients"
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        pytest.skip("`make clients` has not made .venv-clients, so its clients were NOT tried")


class RegistryClients:
    """Runs scripts with the packages of the group `clients`, which `make clients` installs.

    They are not this project's dependencies: they want other versions of what it depends on.
    """

    def __init__(self) -> None:
        """Skips the test where the packages are not installed."""
        require_clients()

    def run(self, script: Path, *arguments: str, timeout_s: float = TIMEOUT_S) -> Any:
        """The JSON on the last line that `script` prints; fails with its output when it fails.

        `script` may import only modules that need none of this project's packages.
        """
        command = [str(PYTHON), "-X", "faulthandler", str(script), *arguments]
        try:
            ran = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        except subprocess.TimeoutExpired as late:
            said = "".join(_text(part) for part in (late.stdout, late.stderr))
            pytest.fail(f"{script.name} did not end in {timeout_s:g} s:\n{said}", pytrace=False)
        if ran.returncode:
            pytest.fail(f"{script.name} failed:\n{ran.stdout}\n{ran.stderr}", pytrace=False)
        sys.stderr.write(ran.stderr)  # pytest shows it when the test fails
        return json.loads(ran.stdout.splitlines()[-1])


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""
