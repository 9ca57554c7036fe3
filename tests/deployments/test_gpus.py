"""Where Ray places the replicas of the GPU profile: real scheduling of pretended GPUs."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from configs.settings import PROJECT_DIR
from deployments.cluster import serve_api
from deployments.rollout.serve_config import Config
from tests.deployments.conftest import PRETENDED_GPUS, TestCluster
from tests.deployments.gpu_holders import NAMES
from tests.deployments.rollout.test_deploy import entry
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.slow]


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
        "import_path": "tests.deployments.gpu_holders:build",
        "args": {},
        "deployments": [*holders, {"name": "Ingress", "ray_actor_options": {"num_cpus": 0}}],
    }


async def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


async def test_chat_has_a_replica_on_each_gpu_and_a_killed_one_returns(
    ray_cluster: TestCluster, tmp_path: Path
) -> None:
    def gpus(name: str) -> list[str]:
        return [file.read_text() for file in (tmp_path / name).iterdir()]

    def replicas(name: str) -> list[dict[str, Any]]:
        running: Any = serve_api.applications(ray_cluster.dashboard_url)["gpus"]
        listed: list[dict[str, Any]] = running["deployments"][name]["replicas"]
        return listed

    def run(name: str) -> bool:
        return [replica["state"] for replica in replicas(name)] == ["RUNNING"] * PRETENDED_GPUS

    app = application(tmp_path)
    holders = {holder["name"]: holder for holder in app["deployments"]}
    chat = holders["Chat"]
    assert chat["autoscaling_config"]["max_replicas"] > PRETENDED_GPUS
    async with ray_cluster.with_app(app):
        assert {gpu for name in NAMES for gpu in gpus(name)} == {gpus("Chat")[0]}  # one is enough
        chat["user_config"]["load"] = 3.0
        await asyncio.to_thread(ray_cluster.deploy)
        await until(lambda: run("Chat"))
        assert len(set(gpus("Chat"))) == PRETENDED_GPUS
        holders["STT"]["user_config"]["load"] = 9.0  # more than GPUs, in the room that is left
        await asyncio.to_thread(ray_cluster.deploy)
        await until(lambda: run("STT"))
        dead = replicas("Chat")[0]
        os.kill(dead["pid"], signal.SIGKILL)
        await until(lambda: run("Chat") and dead["replica_id"] not in str(replicas("Chat")))
        assert run("STT")
