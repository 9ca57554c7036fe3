"""Shows and changes the cluster, for the operator. `deploy` runs in a process of its own, since its
check imports all engines, which the gateway should not keep in its memory."""

import asyncio
import os
import subprocess
import sys
from tempfile import NamedTemporaryFile

import yaml

from api.http.errors import ApiError
from deployments.cluster import serve_api
from deployments.cluster.compat import dashboard_url
from pipelines.errors import InvalidRequest

TIMEOUT_S = 700.0  # the command itself waits 600 s for models
# Short, since probes of `/readyz` wait for the answer, and a failing cluster's dashboard hangs.
READINESS_TIMEOUT_S = 3.0


class ServeControl:
    """`ClusterControl` by Serve's API and the command `deploy`, one run at a time."""

    def __init__(self) -> None:
        named = {"ray": dashboard_url(), "grafana": os.environ.get("RAY_GRAFANA_HOST", "")}
        self.links = {name: url for name, url in named.items() if url}
        self._deploying = asyncio.Lock()

    async def running(self) -> str:
        """Implements `ClusterControl.running`."""
        try:
            state = await asyncio.to_thread(serve_api.state, self.links["ray"])
        except ValueError as error:
            raise ApiError("unavailable", str(error)) from None
        return str(yaml.safe_dump(serve_api.running(state), sort_keys=False))

    async def failures(self) -> dict[str, str]:
        """Implements `ClusterControl.failures`."""
        try:
            state = await asyncio.to_thread(
                serve_api.applications, self.links["ray"], READINESS_TIMEOUT_S
            )
        except ValueError:  # models may answer while the dashboard does not
            return {}
        failures = serve_api.failures(state)
        return {place.rpartition("/")[2]: reason for place, reason in failures.items()}

    async def deploy(self, config: str, *, only_check: bool) -> tuple[bool, str]:
        """Implements `ClusterControl.deploy`."""
        async with self._deploying:
            await self.running()  # raises if the cluster is down; the configuration is not to blame
            return await asyncio.to_thread(self._deploy, config, only_check)

    def _deploy(self, config: str, only_check: bool) -> tuple[bool, str]:
        with NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write(config)
            file.flush()
            command = [sys.executable, "-m", "deployments.operator", "deploy", file.name]
            options = ["--dashboard", self.links["ray"], *["--check"] * only_check]
            try:
                ended = subprocess.run(
                    [*command, *options], capture_output=True, text=True, timeout=TIMEOUT_S
                )
            except subprocess.TimeoutExpired as error:
                raise ApiError("unavailable", f"no result after {error.timeout} s") from None
        texts = (ended.stdout, ended.stderr)
        changes, errors = (text.replace(file.name, "the configuration").strip() for text in texts)
        if ended.returncode and not changes:  # the command prints changes before it deploys
            raise InvalidRequest(errors)
        return ended.returncode == 0, f"{changes}\n{errors}".strip()
