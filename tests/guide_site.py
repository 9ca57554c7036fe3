"""The site of docs/, built for tests."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from configs.settings import PROJECT_DIR

CONFIG = PROJECT_DIR / "docs" / "site" / "mkdocs.yml"
MKDOCS = PROJECT_DIR / ".venv-guide" / "bin" / "mkdocs"


def build_site(folders: pytest.TempPathFactory) -> Path:
    """Builds it once for all processes of a run, and returns its folder. Skips where `make guide`
    has not installed what builds it."""
    if not MKDOCS.exists():
        pytest.skip("`make guide` has not made .venv-guide, so the guide was NOT built or tested")
    shared = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    site = shared / "guide-site"
    unfinished = shared / "guide-site-unfinished"
    with (shared / "guide-site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait
        if not site.exists():
            command: list[str | Path] = [MKDOCS, "build", "--strict", "--config-file", CONFIG]
            command += ["--site-dir", unfinished]
            built = subprocess.run(command, capture_output=True, text=True)
            assert built.returncode == 0, built.stderr
            unfinished.rename(site)
    return site
