"""A replica makes its engine meet the usual lengths, and rest, but never while somebody speaks."""

import asyncio
import os
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import aclosing

import numpy as np
import pytest
import pytest_asyncio

import deployments.replicas.model
import deployments.replicas.tts
from deployments.replicas.tts import TTSDeployment
from models.audio import AudioChunk
from models.info import ModelInfo, VoiceInfo
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore
from tests.patience import PATIENCE_S

SOUND = AudioChunk(np.ones(2400, np.float32), 24_000)
REQUEST = SynthesisRequest("Good morning.", "v", "en")


class RehearsingEngine:
    """Counts what it rehearses, and says a word for as long as it is let."""

    sample_rate = 24_000
    native_speed = True
    lanes = 1

    def __init__(self, name: str) -> None:
        self.info = ModelInfo(name, "tts", "fake", "x", 0, ("en",))
        self.rehearsed = 0
        self.rests = 0
        self.closed = False

    def voices(self) -> Sequence[VoiceInfo]:
        return ()

    def synthesize(self, request: SynthesisRequest) -> Generator[AudioChunk, None, None]:
        yield SOUND
        yield SOUND

    def rest(self) -> None:
        self.rests += 1

    def rehearse(self) -> Generator[AudioChunk, None, None]:
        try:
            while True:
                self.rehearsed += 1
                yield SOUND
        finally:
            self.closed = True


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, RehearsingEngine]:
    made: dict[str, RehearsingEngine] = {}

    def load(name: str, weights: WeightStore) -> tuple[RehearsingEngine, ModelInfo]:
        made[name] = RehearsingEngine(name)
        return made[name], made[name].info

    monkeypatch.setattr(deployments.replicas.tts, "load_tts", load)
    monkeypatch.setattr(deployments.replicas.model, "cluster_reports", lambda: None)
    monkeypatch.setattr(os, "setpriority", lambda *which: None)  # this process runs other tests
    monkeypatch.setattr(deployments.replicas.tts, "REHEARSE_AFTER_S", 0.01)
    monkeypatch.setattr(deployments.replicas.tts, "REST_S", 0.01)
    monkeypatch.setattr(deployments.replicas.tts, "KEEPS_S", 0.05)
    return made


@pytest_asyncio.fixture
async def replica(engines: dict[str, RehearsingEngine]) -> AsyncIterator[TTSDeployment]:
    replica = TTSDeployment()
    await replica.reconfigure({"model": "one"})
    yield replica
    await replica.stop_rehearsing()


async def until_rehearsed(engine: RehearsingEngine, times: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while engine.rehearsed < times:
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("replica")
async def test_an_engine_rehearses_by_itself(engines: dict[str, RehearsingEngine]) -> None:
    await until_rehearsed(engines["one"], 3)


async def test_a_rehearsal_rests_while_somebody_speaks(
    replica: TTSDeployment, engines: dict[str, RehearsingEngine]
) -> None:
    engine = engines["one"]
    await until_rehearsed(engine, 1)
    async with aclosing(replica.synthesize(REQUEST)) as chunks:
        await anext(chunks)
        await asyncio.sleep(0.3)  # what had begun is over
        before = engine.rehearsed
        await asyncio.sleep(0.2)
        assert engine.rehearsed == before
    await until_rehearsed(engine, before + 2)


async def test_a_swapped_engine_stops_rehearsing(
    replica: TTSDeployment, engines: dict[str, RehearsingEngine]
) -> None:
    await until_rehearsed(engines["one"], 1)
    await replica.reconfigure({"model": "two"})
    await until_rehearsed(engines["two"], 2)
    assert engines["one"].closed
    before = engines["one"].rehearsed
    await asyncio.sleep(0.1)
    assert engines["one"].rehearsed == before


async def test_a_failed_rehearsal_harms_no_request(
    replica: TTSDeployment, engines: dict[str, RehearsingEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: RehearsingEngine) -> Iterator[AudioChunk]:
        self.closed = True
        raise RuntimeError("out of memory")
        yield SOUND

    monkeypatch.setattr(RehearsingEngine, "rehearse", fail)
    await replica.reconfigure({"model": "two"})
    async with asyncio.timeout(PATIENCE_S):
        while not engines["two"].closed:
            await asyncio.sleep(0.005)
    async with aclosing(replica.synthesize(REQUEST)) as chunks:
        assert len([chunk async for chunk in chunks]) == 2


async def test_an_engine_rests_once_nobody_has_spoken_for_a_while(
    engines: dict[str, RehearsingEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments.replicas.tts, "REHEARSE_AFTER_S", 60)
    replica = TTSDeployment()
    await replica.reconfigure({"model": "one"})
    engine = engines["one"]
    async with aclosing(replica.synthesize(REQUEST)) as first:
        await anext(first)
        async with aclosing(replica.synthesize(REQUEST)) as second:
            await anext(second)
        await asyncio.sleep(0.15)
        assert engine.rests == 0  # the first one speaks
    async with asyncio.timeout(PATIENCE_S):
        while not engine.rests:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.15)
    assert engine.rests == 1
    await replica.stop_rehearsing()
