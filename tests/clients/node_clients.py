"""Other people's packages for Node, pinned, in one folder that is kept between runs."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {
    "openai": "7.55.0",
    "ai": "6.0.326",
    "@ai-sdk/openai": "3.0.141",
    "@ai-sdk/openai-compatible": "2.0.87",
    "zod": "4.6.7",
    "ws": "8.23.0",
}
HERE = Path(__file__).parent
INSTALL_S, RUN_S = 240, 60


class NodeClients:
    """Runs scripts beside the packages."""

    def __init__(self) -> None:
        """Skips the test where Node is not there, or the registry cannot be reached."""
        if not (shutil.which("node") and shutil.which("npm")):
            pytest.skip("node and npm are not installed, so the Node clients were NOT tried")
        wanted = json.dumps({"private": True, "dependencies": PACKAGES})
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        version = hashlib.sha256(wanted.encode()).hexdigest()[:12]
        self.folder = cache / "antiphon" / f"node-clients-{version}"
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other workers of the run wait
            self._install(wanted)

    def _install(self, wanted: str) -> None:
        installed = self.folder / "installed"
        if installed.exists():
            return
        (self.folder / "package.json").write_text(wanted)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"]
        ran = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=INSTALL_S
        )
        if ran.returncode:
            tried = f"{', '.join(PACKAGES)} were NOT tried: npm could not install them"
            pytest.skip(f"{tried}\n{ran.stderr[:500]}")
        installed.touch()

    def script(self, name: str) -> Path:
        """Node looks for packages beside the script, so a copy goes there."""
        return Path(shutil.copy(HERE / name, self.folder / name))

    def run(self, name: str, *arguments: str) -> Any:
        """What the script prints as JSON; fails with all it said when it fails."""
        command = ["node", str(self.script(name)), *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S)
        assert ran.returncode == 0, f"{name} failed:\n{ran.stdout}\n{ran.stderr}"
        return json.loads(ran.stdout)
