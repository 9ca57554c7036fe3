"""Requests whose caller leaves while an engine computes for them."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import aclosing, suppress

import pytest

import deployments.replicas.model
import deployments.replicas.tts
from deployments.replicas.tts import TTSDeployment
from models.audio import AudioChunk
from models.base import ModelInfo
from models.errors import EngineError
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine
from tests.deployments.replicas.test_priority_batcher import busy, settle
from tests.patience import PATIENCE_S


class Uninterruptible(TTSEngine):
    """Computes until its listener has left."""

    capabilities = TTSCapabilities(sample_rate=24_000, languages=("en",))

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        left = threading.Event()
        request.interruption.add(left.set)
        self.begun.set()
        assert left.wait(PATIENCE_S)
        self.ended.set()
        raise EngineError("terminated")
        yield


async def test_a_call_that_computes_for_a_listener_who_leaves_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, info = Uninterruptible(), ModelInfo("svc/fake", "tts", "fake", "x", 0, ("en",))
    monkeypatch.setattr(deployments.replicas.model, "load_model", lambda *_: (engine, info))
    monkeypatch.setattr(deployments.replicas.model, "cluster_reports", lambda: None)
    replica = TTSDeployment()
    await replica.reconfigure({"model": "fake"})

    async def listen() -> None:
        async with aclosing(replica.synthesize(SynthesisRequest("Good day.", "v", "en"))) as chunks:
            async for _ in chunks:
                pass

    listener = asyncio.create_task(listen())
    assert await asyncio.to_thread(engine.begun.wait, PATIENCE_S)
    assert not engine.ended.is_set()
    listener.cancel()
    with suppress(asyncio.CancelledError):
        await listener
    assert await asyncio.to_thread(engine.ended.wait, PATIENCE_S)
    await replica.stop_warm_up()


async def test_the_engine_knows_whose_caller_left_while_it_decodes() -> None:
    engine = await busy()
    gone, _ = engine.submit("gone"), engine.submit("stays")
    await settle()
    await engine.end(0)
    running = {str(request.language): request.budget for request in engine.requests}
    assert running["gone"].is_wanted() and running["stays"].is_wanted()
    gone.cancel()
    await settle()
    assert not running["gone"].is_wanted()
    assert running["stays"].is_wanted()
    await engine.end_all(failures=1)
