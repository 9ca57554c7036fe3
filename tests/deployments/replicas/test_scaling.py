"""Model swaps and autoscaling under continuous requests."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing

import numpy as np
import pytest

from deployments.gateway.handles import ModelDirectory
from models.llm.base import ChatMessage, GenerationRequest
from models.stt.base import FILE, STT_SAMPLE_RATE, TranscriptionRequest
from tests.deployments.conftest import FIXED_SCALE, TestCluster
from tests.engines import ECHO_SLOW, SCRIPTED_SLOW
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]


async def keep_listening(directory: ModelDirectory, stop: asyncio.Event) -> None:
    """Transcribes files until `stop` is set; any failure propagates."""
    request = TranscriptionRequest(np.full(STT_SAMPLE_RATE, 0.1, np.float32), urgency=FILE)
    while not stop.is_set():
        await directory.transcribers["STT"].transcribe(request)


async def keep_chatting(directory: ModelDirectory, stop: asyncio.Event) -> None:
    """Asks for long answers until `stop` is set; any failure propagates."""
    request = GenerationRequest((ChatMessage("user", "word " * 1_000),), owner="one")
    async with aclosing(directory.chat_models["Chat"].generate(request)) as deltas:
        async for _ in deltas:
            if stop.is_set():
                break


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model", "work", "callers"),
    [
        ("STT", SCRIPTED_SLOW, keep_listening, 60),  # half a second for each
        ("Chat", ECHO_SLOW, keep_chatting, 120),  # of which 64 have a slot
    ],
)
async def test_waiting_audio_and_tokens_add_a_replica_that_goes_afterwards(
    directory: ModelDirectory,
    ray_cluster: TestCluster,
    name: str,
    model: str,
    work: Callable[[ModelDirectory, asyncio.Event], Coroutine[None, None, None]],
    callers: int,
) -> None:
    options = ray_cluster.options(name)
    original = dict(options)
    options["user_config"] = {"model": model}
    options["autoscaling_config"] = {
        **FIXED_SCALE,
        "max_replicas": 2,
        "upscale_delay_s": 1,
        "downscale_delay_s": 2,
    }
    await asyncio.to_thread(ray_cluster.deploy)
    stop = asyncio.Event()
    try:
        await until_replicas(name, 1)
        load = [asyncio.create_task(work(directory, stop)) for _ in range(callers)]
        try:
            await until_replicas(name, 2)
        finally:
            stop.set()
            await asyncio.gather(*load)
        await until_replicas(name, 1)
    finally:
        options.clear()
        options.update(original)
        await asyncio.to_thread(ray_cluster.deploy)


@pytest.mark.slow
async def test_requests_that_wake_a_model_at_zero_are_answered(
    directory: ModelDirectory, ray_cluster: TestCluster
) -> None:
    options = ray_cluster.options("STT")
    original = options["autoscaling_config"]
    transcriber = directory.transcribers["STT"]
    options["autoscaling_config"] = {
        **FIXED_SCALE,
        "min_replicas": 0,
        "initial_replicas": 1,
        "downscale_to_zero_delay_s": 2,
    }
    await asyncio.to_thread(ray_cluster.deploy)
    try:
        request = TranscriptionRequest(np.full(STT_SAMPLE_RATE, 0.1, np.float32), urgency=FILE)
        for _ in range(8):  # each shorter than the time between two looks at the load
            await transcriber.transcribe(request)
            await asyncio.sleep(0.5)
        await until_replicas("STT", 1, within_s=1)
        await directory.refresh()  # what it is has to be known
        await until_replicas("STT", 0)
        for _ in range(5):
            info = await transcriber.describe()
            await directory.refresh()
        assert info.is_asleep and info.id == "svc/stt-scripted"
        await until_replicas("STT", 0, within_s=1)
        answers = await asyncio.gather(*(transcriber.transcribe(request) for _ in range(20)))
        assert len(answers) == 20
        assert not (await transcriber.describe()).is_asleep
    finally:
        options["autoscaling_config"] = original
        await asyncio.to_thread(ray_cluster.deploy)


async def until_replicas(name: str, count: int, within_s: float = PATIENCE_S) -> None:
    from ray import serve
    from ray.serve._private.common import ReplicaState

    deadline = time.monotonic() + within_s
    while True:
        status = await asyncio.to_thread(serve.status)
        states = status.applications["models"].deployments[name].replica_states
        if states.get(ReplicaState.RUNNING, 0) == count and sum(states.values()) == count:
            return
        assert time.monotonic() < deadline, f"{count} replicas never came: {states}"
        await asyncio.sleep(0.2)
