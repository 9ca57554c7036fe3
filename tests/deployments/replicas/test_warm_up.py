"""A TTS replica warms up its engine and releases memory, but never during a request."""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing

import numpy as np
import pytest
import pytest_asyncio

import deployments.replicas.model
import deployments.replicas.tts
from deployments.replicas.tts import TTSDeployment
from models.audio import AudioChunk
from models.base import ModelInfo
from models.registry import TTS, EngineKind
from models.tts.base import SynthesisRequest, TTSCapabilities, TTSEngine
from models.weights.store import WeightStore
from tests.patience import until

SOUND = AudioChunk(np.ones(2400, np.float32), 24_000)
REQUEST = SynthesisRequest("Good morning.", "v", "en")


class SlowFirstEngine(TTSEngine):
    """A fake engine that counts the steps of its endless warm-up and its memory releases."""

    capabilities = TTSCapabilities(sample_rate=24_000, languages=("en",))

    def __init__(self, name: str) -> None:
        self.info = ModelInfo(name, "tts", "fake", "x", 0, ("en",))
        self.warmed = 0
        self.releases = 0
        self.closed = False

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        yield SOUND
        yield SOUND

    def release_memory(self) -> None:
        self.releases += 1

    def warm_up(self) -> Generator[AudioChunk, None, None]:
        try:
            while True:
                self.warmed += 1
                yield SOUND
        finally:
            self.closed = True


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, SlowFirstEngine]:
    made: dict[str, SlowFirstEngine] = {}

    def load(
        kind: EngineKind[TTSEngine], name: str, weights: WeightStore
    ) -> tuple[SlowFirstEngine, ModelInfo]:
        assert kind is TTS
        made[name] = SlowFirstEngine(name)
        return made[name], made[name].info

    monkeypatch.setattr(deployments.replicas.model, "load_model", load)
    monkeypatch.setattr(deployments.replicas.model, "cluster_reports", lambda: None)
    monkeypatch.setattr(deployments.replicas.tts, "WARM_UP_AFTER_S", 0.01)
    monkeypatch.setattr(deployments.replicas.tts, "PAUSE_S", 0.01)
    monkeypatch.setattr(deployments.replicas.tts, "KEEP_MEMORY_S", 0.05)
    return made


@pytest_asyncio.fixture
async def replica(engines: dict[str, SlowFirstEngine]) -> AsyncIterator[TTSDeployment]:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "one"})
    yield replica
    await replica.stop_warm_up()


async def until_warmed(engine: SlowFirstEngine, times: int) -> None:
    await until(lambda: engine.warmed >= times)


@pytest.mark.usefixtures("replica")
async def test_an_idle_replica_warms_up_its_engine(engines: dict[str, SlowFirstEngine]) -> None:
    await until_warmed(engines["one"], 3)


async def test_a_warm_up_pauses_during_a_request(
    replica: TTSDeployment, engines: dict[str, SlowFirstEngine]
) -> None:
    engine = engines["one"]
    await until_warmed(engine, 1)
    async with aclosing(replica.synthesize(REQUEST)) as chunks:
        await anext(chunks)
        await asyncio.sleep(0.3)  # a warm-up step that had begun has ended
        before = engine.warmed
        await asyncio.sleep(0.2)
        assert engine.warmed == before
    await until_warmed(engine, before + 2)


async def test_the_warm_up_of_a_swapped_engine_stops(
    replica: TTSDeployment, engines: dict[str, SlowFirstEngine]
) -> None:
    await until_warmed(engines["one"], 1)
    await replica.reconfigure({"model": "two"})
    await until_warmed(engines["two"], 2)
    assert engines["one"].closed
    before = engines["one"].warmed
    await asyncio.sleep(0.1)
    assert engines["one"].warmed == before


async def test_requests_succeed_after_a_failed_warm_up(
    replica: TTSDeployment, engines: dict[str, SlowFirstEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: SlowFirstEngine) -> Iterator[AudioChunk]:
        self.closed = True
        raise RuntimeError("out of memory")
        yield SOUND

    monkeypatch.setattr(SlowFirstEngine, "warm_up", fail)
    await replica.reconfigure({"model": "two"})
    await until(lambda: engines["two"].closed)
    async with aclosing(replica.synthesize(REQUEST)) as chunks:
        assert len([chunk async for chunk in chunks]) == 2


async def test_memory_is_released_once_after_the_last_request(
    engines: dict[str, SlowFirstEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments.replicas.tts, "WARM_UP_AFTER_S", 60)
    replica = TTSDeployment()
    await replica.reconfigure({"model": "one"})
    engine = engines["one"]
    async with aclosing(replica.synthesize(REQUEST)) as first:
        await anext(first)
        async with aclosing(replica.synthesize(REQUEST)) as second:
            await anext(second)
        await asyncio.sleep(0.15)
        assert engine.releases == 0  # the first request is still open
    await until(lambda: engine.releases)
    await asyncio.sleep(0.15)
    assert engine.releases == 1
    await replica.stop_warm_up()
