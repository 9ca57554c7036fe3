"""What `antiphon deploy` does with a file that is unchanged, on a Ray cluster."""

import asyncio
import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deployments.cluster import serve_api
from deployments.gateway.handles import ModelDirectory
from deployments.rollout import deploy
from deployments.rollout.serve_config import Config
from tests.deployments.conftest import TestCluster, model
from tests.engines import ECHO_SLOW

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
async def config(ray_cluster: TestCluster) -> AsyncIterator[Config]:
    """What is deployed, and deployed again after the test."""
    models = copy.deepcopy(ray_cluster.models_app)
    yield {"proxy_location": "Disabled", "applications": [models]}
    await asyncio.to_thread(ray_cluster.deploy)


def deploy_again(ray_cluster: TestCluster, config: Config) -> None:
    """Deploy as the command does, without a gateway that reports."""
    config = copy.deepcopy(config)
    running = serve_api.applications(ray_cluster.dashboard_url)
    deploy.try_again(running, config, {})
    serve_api.deploy(ray_cluster.dashboard_url, config)
    deploy.wait(ray_cluster.dashboard_url, {"models"})


async def test_a_model_that_did_not_load_and_an_edited_model_are_loaded(
    ray_cluster: TestCluster, directory: ModelDirectory, config: Config, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"like: {ECHO_SLOW}\nid: svc/mine\nowned_by: 5")
    (models,) = config["applications"]
    models["args"]["chat"].append("ChatMine")
    models["deployments"].append(model("ChatMine", str(file)))
    with pytest.raises(ValueError, match="models/ChatMine: .* cannot be loaded: owned_by: "):
        await asyncio.to_thread(deploy_again, ray_cluster, config)
    for name in ("svc/mine", "svc/mine-2"):
        file.write_text(f"like: {ECHO_SLOW}\nid: {name}")
        await asyncio.to_thread(deploy_again, ray_cluster, config)
        await directory.refresh()
        assert (await directory.chat_models["ChatMine"].handle.describe.remote()).id == name
