"""An overloaded STT replica: finals go before files, and cancelled requests are skipped."""

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from deployments.gateway.handles import ModelDirectory
from models.stt.base import FILE, FINAL, TranscriptionRequest
from tests.deployments.conftest import TestCluster
from tests.engines import SCRIPTED_SLOW
from tests.patience import PATIENCE_S
from tests.stopwatch import stopwatch

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]

DECODE_S = 0.5  # per request, from scripted_slow.yaml; requests run one after the other


@pytest_asyncio.fixture(loop_scope="session")
async def slow(directory: ModelDirectory, ray_cluster: TestCluster) -> AsyncIterator[None]:
    options = ray_cluster.options("STT")
    original = options["user_config"]
    try:
        options["user_config"] = {"model": SCRIPTED_SLOW}
        await asyncio.to_thread(ray_cluster.deploy)
        await until_loaded(directory, "svc/stt-scripted-slow")
        yield
    finally:
        options["user_config"] = original
        await asyncio.to_thread(ray_cluster.deploy)
        await until_loaded(directory, "svc/stt-scripted")


async def until_loaded(directory: ModelDirectory, model_id: str) -> None:
    transcriber = directory.transcribers["STT"]
    deadline = time.monotonic() + PATIENCE_S
    while (await transcriber.describe()).id != model_id:
        assert time.monotonic() < deadline, f"{model_id} never came"
        await asyncio.sleep(0.05)
        transcriber.forget()


@pytest.mark.usefixtures("slow")
async def test_finals_pass_files_and_cancelled_work_is_skipped(directory: ModelDirectory) -> None:
    transcriber = directory.transcribers["STT"]
    done: list[str] = []

    async def ask(name: str, urgency: int) -> None:
        pcm = np.ones(16_000, np.float32)
        await transcriber.transcribe(TranscriptionRequest(pcm, "en", urgency=urgency))
        done.append(name)

    # Decoded for long enough that all requests below arrive meanwhile.
    first = [asyncio.create_task(ask("first", FINAL)) for _ in range(3)]
    await asyncio.sleep(0.2)
    gone = [asyncio.create_task(ask("gone", FINAL)) for _ in range(8)]
    file = asyncio.create_task(ask("file", FILE))
    await asyncio.sleep(0.1)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    with stopwatch() as waited_s:
        await asyncio.gather(*first, file, asyncio.create_task(ask("final", FINAL)))
    assert done == ["first", "first", "first", "final", "file"]
    assert waited_s() < 7 * DECODE_S  # 13 times DECODE_S if the cancelled ones were decoded
