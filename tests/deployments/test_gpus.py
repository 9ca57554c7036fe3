"""Where Ray places the replicas of the GPU profile: real scheduling of pretended GPUs."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.settings import PROJECT_DIR
from deployments.cluster import serve_api
from deployments.rollout.serve_config import Config
from tests.deployments.conftest import PRETENDED_GPUS, TestCluster
from tests.deployments.gpus import NAMES
from tests.deployments.rollout.test_deploy import entry
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.ray


def application(folder: Path) -> Config:
    """Placeholders with the resources, policies and bounds of the GPU profile."""
    profile = yaml.safe_load((PROJECT_DIR / "configs" / "serve_gpu.yaml").read_text())
    holders = []
    for name in NAMES:
        shipped = entry(profile, name)
        (folder / name).mkdir()
        scaling = shipped["autoscaling_config"] | {
            "look_back_period_s": 1,
            "metrics_interval_s": 0.5,
            "upscale_delay_s": 0,
        }
        holders.append(
            {
                "name": name,
                "user_config": {"load": 0.5, "folder": str(folder / name)},
                "ray_actor_options": shipped["ray_actor_options"] | {"num_cpus": 0},
                "autoscaling_config": scaling,
                "max_surge_percent": shipped["max_surge_percent"],
                "graceful_shutdown_wait_loop_s": 0.1,
                "graceful_shutdown_timeout_s": 1,
            }
        )
    return {
        "name": "gpus",
        "route_prefix": None,
        "import_path": "tests.deployments.gpus:build",
        "args": {},
        "deployments": [
            *holders,
            {"name": "Ingress", "ray_actor_options": {"num_cpus": 0}},
        ],
    }


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def test_chat_replicas_get_a_gpu_each_and_those_without_one_wait(
    ray_cluster: TestCluster, tmp_path: Path
) -> None:
    def gpus(name: str) -> list[str]:
        return [file.read_text() for file in (tmp_path / name).iterdir()]

    def states(name: str) -> Counter[str]:
        running: Any = serve_api.applications(ray_cluster.dashboard_url)["gpus"]
        return Counter(replica["state"] for replica in running["deployments"][name]["replicas"])

    app = application(tmp_path)
    chat = next(holder for holder in app["deployments"] if holder["name"] == "Chat")
    most = chat["autoscaling_config"]["max_replicas"]
    assert most > PRETENDED_GPUS
    async with ray_cluster.with_app(app):
        assert {gpu for name in NAMES for gpu in gpus(name)} == {gpus("Chat")[0]}  # one is enough
        chat["user_config"]["load"] = 3.0
        await asyncio.to_thread(ray_cluster.deploy)
        await until(lambda: len(gpus("Chat")) == PRETENDED_GPUS)
        assert len(set(gpus("Chat"))) == PRETENDED_GPUS
        waiting = most - PRETENDED_GPUS
        await until(lambda: states("Chat") == {"RUNNING": PRETENDED_GPUS, "STARTING": waiting})
        await asyncio.to_thread(ray_cluster.wait)  # they do not make the application fail
        assert len(gpus("Chat")) == PRETENDED_GPUS
