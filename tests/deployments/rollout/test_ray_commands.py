"""Ray's own commands against a running service: its models survive a wrong configuration."""

import asyncio
import copy
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from deployments.cluster import serve_api
from deployments.gateway.handles import ModelDirectory
from deployments.rollout.serve_config import Config
from models.stt.base import FILE, STT_SAMPLE_RATE, TranscriptionRequest
from tests.deployments.conftest import TestCluster
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def changed(config: Config, case: str) -> Config:
    (models,) = config["applications"]
    index, _, stt, chat = models["deployments"]
    match case:
        case "argument":
            models["args"]["ttts"] = ["Other"]
        case "model without an entry":
            models["args"]["tts"] = ["TTSFast", "Other"]
        case "entry removed":
            models["deployments"].remove(stt)
        case "harmless":
            index["user_config"] = {"a": 1}
            chat["user_config"] = {"model": "auto"}
    return config


@pytest.fixture
async def deployed(ray_cluster: TestCluster) -> AsyncIterator[Config]:
    """What is deployed, and deployed again after the test."""
    models = copy.deepcopy(ray_cluster.models_app)
    yield {"proxy_location": "Disabled", "applications": [models]}
    await asyncio.to_thread(ray_cluster.deploy)


async def settled(ray_cluster: TestCluster) -> dict[str, Any]:
    """The application `models`, once Serve has done what it can."""
    deadline = time.monotonic() + 3 * PATIENCE_S
    while True:
        state = await asyncio.to_thread(serve_api.applications, ray_cluster.dashboard_url)
        models: dict[str, Any] = state["models"]
        if models["status"] != "DEPLOYING":
            return models
        assert time.monotonic() < deadline, models
        await asyncio.sleep(0.2)


async def transcribes(directory: ModelDirectory) -> None:
    request = TranscriptionRequest(np.full(STT_SAMPLE_RATE, 0.1, np.float32), urgency=FILE)
    await directory.transcribers["STT"].transcribe(request)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("model without an entry", "application 'models': 'Other' of args has no entry"),
        ("entry removed", "application 'models': 'STT' of args has no entry"),
        ("harmless", ""),
    ],
)
async def test_what_serve_deploys_is_checked_where_it_is_built(
    ray_cluster: TestCluster, directory: ModelDirectory, deployed: Config, case: str, reason: str
) -> None:
    await asyncio.to_thread(serve_api.deploy, ray_cluster.dashboard_url, changed(deployed, case))
    models = await settled(ray_cluster)
    assert (models["status"] == "RUNNING") == (not reason)
    messages = [entry["message"] for entry in (models, *models["deployments"].values())]
    assert any(reason in message for message in messages), "".join(messages)
    await transcribes(directory)


async def test_serve_deploy_and_serve_status(
    ray_cluster: TestCluster, directory: ModelDirectory, deployed: Config, tmp_path: Path
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(changed(deployed, "argument")))

    async def serve(*arguments: str) -> str:
        command = [str(Path(sys.executable).with_name("serve")), *arguments]
        command += ["--address", ray_cluster.dashboard_url]
        done = await asyncio.to_thread(
            subprocess.run, command, env=os.environ, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    await serve("deploy", str(file))
    await settled(ray_cluster)
    status = yaml.safe_load(await serve("status"))["applications"]["models"]
    assert status["status"] == "DEPLOY_FAILED"
    assert status["message"].endswith("args: ttts: Extra inputs are not permitted")
    await transcribes(directory)
