"""A Ray cluster on this machine, with the switches that this service wants.

The switches are environment variables of the Ray node: Serve reads them in each process it
starts, and `serve_config.yaml` cannot hold them.
"""

import json
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from configs import environment
from configs.settings import PROJECT_DIR

DASHBOARD_PORT = 8265
OBJECT_STORE_BYTES = 256 << 20  # handles carry values by gRPC, so little lies in the store

NODE_ENVIRONMENT = {
    # gRPC hops and one event loop a replica: a hop costs 0.8 ms and not 2 ms.
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # The gateway listens by itself; a second HTTP server in it would only take a port.
    "RAY_SERVE_ENABLE_DIRECT_INGRESS": "0",
    # Minutes of audio cross a handle in one message; the default is 4 MB.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(256 << 20),
    # The default of 15 lets any other process of the machine starve the replicas.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A replica asks for a fraction of a core, which would make OpenMP use one thread.
    "OMP_NUM_THREADS": str(os.cpu_count() or 1),
    # Each thread of a process would have a heap of its own. Measured: 2 heaps each take 110 MB less
    # of the whole service under load, and the recogniser is as fast.
    "MALLOC_ARENA_MAX": "2",
    # The dashboard listens on the loopback only; set `token` where others share the machine.
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}


def prepare_environment() -> None:
    """Sets what is not set yet. Call it before `ray` is imported for the first time."""
    # Of another cluster; Ray's client of jobs would prefer it to the address that it is given.
    os.environ.pop("RAY_ADDRESS", None)
    for name, value in NODE_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Replicas import this project from wherever the service was started.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(PROJECT_DIR), *filter(None, paths)])


def start(num_cpus: int | None = None) -> str:
    """Starts a cluster that ends with this process; returns the dashboard's address."""
    import ray

    with _agent_on_any_port():
        context = ray.init(
            "local",  # without it a cluster that `ray start` made on this machine is joined
            num_cpus=num_cpus,
            include_dashboard=True,
            dashboard_host="127.0.0.1",
            dashboard_port=environment.port("RAY_DASHBOARD_PORT", DASHBOARD_PORT),
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.WARNING,
            namespace="serve",
        )
    return f"http://{context.dashboard_url}"


@contextmanager
def _agent_on_any_port() -> Iterator[None]:
    """Ray's agent, which starts jobs, else has one port of the machine, 52365: in a second cluster
    it does not start, and no voice is made. No argument of `ray.init` reaches it."""
    from ray._private import parameter

    shipped: Any = parameter.RayParams
    changed: Any = parameter
    changed.RayParams = partial(shipped, dashboard_agent_listen_port=0)
    try:
        yield
    finally:
        changed.RayParams = shipped


def read_config(path: Path) -> dict[str, Any]:
    """Raises OSError, yaml.YAMLError, or ValueError when it is no mapping."""
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError(f"{str(path)!r} holds no configuration of Ray Serve")
    return config


def deploy(dashboard_url: str, config: dict[str, Any]) -> None:
    """What `serve deploy` does. Raises ValueError with Serve's own words when it refuses."""
    request = urllib.request.Request(
        f"{dashboard_url}/api/serve/applications/",
        data=json.dumps(config).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        raise ValueError(error.read().decode(errors="replace")) from None


def failures() -> list[str]:
    """One line for each application or deployment that cannot start."""
    from ray import serve

    lines = []
    for name, application in serve.status().applications.items():
        if application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            lines.append(f"{name}: {application.message.strip()}")
            lines += [
                f"{name}/{deployment}: {status.message.strip()}"
                for deployment, status in application.deployments.items()
                if status.message.strip()
            ]
    return lines
