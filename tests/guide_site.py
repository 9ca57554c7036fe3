"""The site of docs/, built for tests."""

import subprocess
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR

CONFIG = PROJECT_DIR / "docs" / "site" / "mkdocs.yml"
MKDOCS = PROJECT_DIR / ".venv-guide" / "bin" / "mkdocs"


def build_site(folder: Path) -> Path:
    """Builds it into `folder`. Skips where `make guide` has not installed what builds it."""
    if not MKDOCS.exists():
        pytest.skip("`make guide` has not made .venv-guide, so the guide was NOT built or tested")
    command: list[str | Path] = [MKDOCS, "build", "--strict", "--config-file", CONFIG]
    built = subprocess.run([*command, "--site-dir", folder], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder
