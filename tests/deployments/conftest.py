"""One Ray cluster for all tests marked `ray`, with the models that need no weights."""

import asyncio
import copy
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.samples import Sample

from deployments.cluster import node, serve_api
from deployments.gateway.handles import ModelDirectory
from tests.engines import ECHO, SCRIPTED, TONE
from tests.patience import PATIENCE_S

node.prepare_environment()  # before anything here imports ray

DEPLOY_TIMEOUT_S = 3 * PATIENCE_S
PRETENDED_GPUS = 4


def model(name: str, config: str, **options: Any) -> dict[str, Any]:
    return {
        "name": name,
        "user_config": {"model": config},
        "ray_actor_options": {"num_cpus": 0.1},
        "graceful_shutdown_wait_loop_s": 0.1,
        "graceful_shutdown_timeout_s": 5,
        "health_check_period_s": 1,
        **options,
    }


FIXED_SCALE = {
    "min_replicas": 1,
    "max_replicas": 1,
    # A replica that runs keeps the intervals with which it started.
    "look_back_period_s": 1,
    "metrics_interval_s": 0.5,
    "policy": {"policy_function": "deployments.autoscaling:by_load"},
}

MODELS_APP: dict[str, Any] = {
    "name": "models",
    "route_prefix": None,
    "import_path": "deployments.app:build_models",
    "args": {"tts": ["TTSFast"], "stt": ["STT"], "chat": ["Chat"]},
    "deployments": [
        {"name": "ModelIndex"},
        model(
            "TTSFast",
            TONE,
            max_ongoing_requests=2,
            max_queued_requests=4,
            # Present from the start: adding it later is a new code version, which restarts all.
            autoscaling_config=FIXED_SCALE,
        ),
        model("STT", SCRIPTED, max_ongoing_requests=64, autoscaling_config=FIXED_SCALE),
        model("Chat", ECHO, max_ongoing_requests=128, autoscaling_config=FIXED_SCALE),
    ],
}


def gateway_app(
    environment: dict[str, str],
    import_path: str = "deployments.app:build_gateway",
    name: str = "gateway",
    **args: Any,
) -> dict[str, Any]:
    """The application of the gateway, with environment variables of its own."""
    return {
        "name": name,
        "route_prefix": "/" if args.get("server") == "serve" else None,
        "import_path": import_path,
        "args": args,
        "deployments": [
            {
                "name": "Gateway",
                "ray_actor_options": {"num_cpus": 0.1, "runtime_env": {"env_vars": environment}},
                "max_ongoing_requests": 1000,
                "max_surge_percent": 100,
                "graceful_shutdown_wait_loop_s": 0.1,
                "graceful_shutdown_timeout_s": 10,
            }
        ],
    }


def worker_app(
    environment: dict[str, str],
    import_path: str = "deployments.app:build_worker",
    stop_s: float = 5,
) -> dict[str, Any]:
    """The application of the background worker, with environment variables of its own."""
    return {
        "name": "worker",
        "route_prefix": None,
        "import_path": import_path,
        "args": {},
        "deployments": [
            {
                "name": "Worker",
                "ray_actor_options": {"num_cpus": 0, "runtime_env": {"env_vars": environment}},
                "health_check_period_s": 1,
                "graceful_shutdown_wait_loop_s": 0.1,
                "graceful_shutdown_timeout_s": stop_s,
            }
        ],
    }


async def actor_pid(part: str) -> int:
    """The process id of the one live actor whose name contains `part`.

    Searches this cluster by its address, since another service may run on this machine.
    """
    import ray
    from ray.util.state import list_actors

    address = ray.get_runtime_context().gcs_address
    found = await asyncio.to_thread(
        list_actors, address, filters=[("state", "=", "ALIVE")], detail=True
    )
    (actor,) = [one for one in found if part in (one["name"] or "")]
    return int(actor["pid"])


def logs_folder() -> Path:
    """The folder of the log files of this process's Ray cluster."""
    from ray._private import worker

    assert worker._global_node is not None
    return Path(worker._global_node.get_logs_dir_path())


async def samples(client: httpx.AsyncClient) -> list[Sample]:
    page = await client.get("/metrics")
    assert page.status_code == 200, page.text
    return [sample for family in parse(page.text) for sample in family.samples]


def total(found: list[Sample], name: str, **labels: str) -> float:
    return sum(
        one.value for one in found if one.name == name and labels.items() <= one.labels.items()
    )


async def until_ready(client: httpx.AsyncClient) -> None:
    """Waits until the gateway and all models answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = await client.get("/readyz")
        if answer.status_code == 200:
            return
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.2)


class TestCluster:
    """Deploys Serve configurations and waits for them."""

    __test__ = False

    def __init__(self, dashboard_url: str) -> None:
        self.dashboard_url = dashboard_url
        self.models_app = copy.deepcopy(MODELS_APP)
        self.extra_apps: list[dict[str, Any]] = []

    @asynccontextmanager
    async def with_app(self, app: dict[str, Any]) -> AsyncIterator[None]:
        """Deploys `app` beside the models until the block ends."""
        self.extra_apps.append(app)
        await asyncio.to_thread(self.deploy)
        yield
        self.extra_apps.remove(app)
        await asyncio.to_thread(self.deploy)

    def deploy(self) -> None:
        """What `serve deploy` does with the current configuration."""
        applications = [self.models_app, *self.extra_apps]
        serve_api.deploy(
            self.dashboard_url, {"proxy_location": "Disabled", "applications": applications}
        )
        self.wait()

    def wait(self) -> None:
        from ray import serve

        deadline = time.monotonic() + DEPLOY_TIMEOUT_S
        wanted = {app["name"] for app in [self.models_app, *self.extra_apps]}
        while time.monotonic() < deadline:
            applications = serve.status().applications
            states = {name: applications[name].status for name in wanted if name in applications}
            if len(states) == len(wanted) and set(states.values()) == {"RUNNING"}:
                return
            if "DEPLOY_FAILED" in states.values():
                state = serve_api.applications(self.dashboard_url)
                raise AssertionError("\n".join(serve_api.failures(state).values()))
            time.sleep(0.1)
        raise TimeoutError(f"not running after {DEPLOY_TIMEOUT_S} s: {states}")

    def options(self, deployment: str) -> dict[str, Any]:
        """The editable entry of a model deployment, as in `serve_config.yaml`."""
        entries: list[dict[str, Any]] = self.models_app["deployments"]
        return next(entry for entry in entries if entry["name"] == deployment)


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[TestCluster]:
    import ray
    from ray import serve

    with closing(socket.socket()) as agent:
        with suppress(OSError):  # the port is in use
            agent.bind(("", 52365))  # as another cluster of this machine would
            agent.listen()
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("RAY_OVERRIDE_RESOURCES", f'{{"GPU": {PRETENDED_GPUS}}}')
            dashboard_url = node.start(num_cpus=2)
        test_cluster = TestCluster(dashboard_url)
        test_cluster.deploy()
        yield test_cluster
        serve.shutdown()
        ray.shutdown()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def directory(ray_cluster: TestCluster) -> AsyncIterator[ModelDirectory]:
    """Handles of the models; bound to one event loop, the session's."""
    models = ModelDirectory("models")
    await models.refresh()
    yield models
