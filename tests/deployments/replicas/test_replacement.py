"""Serve replaces a replica whose device has failed: on a cluster."""

import asyncio
import time
from pathlib import Path

import pytest
import yaml

from deployments.gateway.handles import ModelDirectory
from models.errors import DeviceFailed, EngineError
from models.llm.base import ChatMessage, GenerationRequest
from tests.deployments.conftest import TestCluster, actor_pid
from tests.engines import ECHO
from tests.engines.broken import BREAK
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]


async def answer(directory: ModelDirectory, text: str) -> str:
    deltas = directory.chat_models["Chat"].generate(GenerationRequest((ChatMessage("user", text),)))
    return "".join([delta.text async for delta in deltas])


async def test_a_replica_whose_device_failed_is_replaced_and_then_requests_succeed(
    ray_cluster: TestCluster, directory: ModelDirectory, tmp_path: Path
) -> None:
    file = tmp_path / "broken.yaml"
    echo = yaml.safe_load(Path(ECHO).read_text())
    file.write_text(yaml.safe_dump(echo | {"engine": "tests.engines.broken:BrokenChat"}))
    options = ray_cluster.options("Chat")
    options["user_config"] = {"model": str(file)}
    await asyncio.to_thread(ray_cluster.deploy)
    try:
        assert await answer(directory, "before") == "before"
        failed = await actor_pid("Chat")
        for text in (BREAK, "after"):
            with pytest.raises(DeviceFailed):
                await answer(directory, text)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                assert await answer(directory, "again") == "again"
                break
            except EngineError as error:
                assert error.retryable and time.monotonic() < deadline
            await asyncio.sleep(0.2)
        assert await actor_pid("Chat") != failed
    finally:
        options["user_config"] = {"model": ECHO}
        await asyncio.to_thread(ray_cluster.deploy)
