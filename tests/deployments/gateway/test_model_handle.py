"""Model handles describe a model, and wake one that was scaled to zero."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from ray.serve.exceptions import BackPressureError

from deployments.cluster.compat import Incompatible, availability
from deployments.gateway import handles
from deployments.gateway.handles import ModelHandle, StopSignal, STTModelHandle, TTSModelHandle
from models.base import ModelInfo
from models.errors import EngineLost, EngineOverloaded, EngineStopped
from models.llm.base import ChatMessage, GenerationRequest
from models.stt.base import Transcript, TranscriptionRequest
from tests.patience import PATIENCE_S

INFO = ModelInfo("svc/stt", "stt", "scripted", "x", 0)
AUDIO = TranscriptionRequest([])  # type: ignore[arg-type]
CHAT = GenerationRequest((ChatMessage("user", "hi"),))


class Replica:
    """A fake deployment handle, whose calls end while its `state` is "ready"."""

    def __init__(self) -> None:
        self.state = "ready"
        self.asked = 0
        self.cancelled = 0
        self.describe = self

    def options(self, **_: object) -> "Replica":
        return self

    def remote(self, *_: object) -> "Replica":
        self.asked += 1
        return self

    def __await__(self) -> Any:
        return self._fetch_future_result_async().__await__()

    async def _fetch_future_result_async(self) -> Any:
        while self.state != "ready":
            await asyncio.sleep(0.01)
        return INFO

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(handles, "WAKE_S", 0.2)
    monkeypatch.setattr(handles, "COUNTED_S", 0.01)
    monkeypatch.setattr(handles, "availability", lambda handle: handle.state)
    monkeypatch.setattr(handles, "report_waiting_calls", lambda handle: None)
    return Replica()


@pytest.fixture
def model(replica: Replica) -> STTModelHandle:
    return STTModelHandle("STT", replica)  # type: ignore[arg-type]


async def test_a_model_without_the_replica_that_it_should_have_is_lost(
    model: ModelHandle, replica: Replica
) -> None:
    replica.state = "lost"
    for model.info in (None, INFO):
        with pytest.raises(EngineLost, match="STT"):
            await model.describe()
    assert not replica.asked


async def test_a_stop_ends_the_calls_that_wait_and_those_that_follow(replica: Replica) -> None:
    stop = StopSignal()
    model = STTModelHandle("STT", replica, stop)  # type: ignore[arg-type]
    replica.state = "asleep"
    call = asyncio.create_task(model.transcribe(AUDIO))
    while not replica.asked:
        await asyncio.sleep(0)
    stop.set()
    for waits in (call, asyncio.create_task(model.transcribe(AUDIO))):
        with pytest.raises(EngineStopped, match="the service is stopping"):
            await waits
    assert replica.cancelled == 2


async def test_only_new_and_swapped_models_are_asked_to_describe_themselves(
    model: ModelHandle, replica: Replica
) -> None:
    for _ in range(3):
        assert await model.describe() == INFO
    assert replica.asked == 1
    model.forget()
    model.learn(replace(INFO, id="svc/before"))  # the index may not know of the swap yet
    assert await model.describe() == INFO
    assert replica.asked == 2


async def test_a_model_after_an_unseen_swap_is_as_the_index_says(
    model: ModelHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = replace(INFO, id="svc/swapped")
    model.learn(INFO)
    model.learn(swapped)
    model.learn(None)
    model.learn(replace(INFO, is_loaded=False))  # of a replica that begins
    assert await model.describe() == swapped
    monkeypatch.setattr(handles, "POLL_S", 0.0)
    model.forget()
    await asyncio.sleep(0.01)
    model.learn(INFO)
    assert await model.describe() == INFO


async def test_a_model_that_is_asleep_is_described_and_not_woken(
    model: ModelHandle, replica: Replica
) -> None:
    replica.state = "asleep"
    with pytest.raises(EngineLost):  # what it is was not reported yet
        await model.describe()
    model.info = INFO
    assert (await model.describe()).is_asleep
    await TTSModelHandle("TTS", replica).forget_voice("digest")  # type: ignore[arg-type]
    assert not replica.asked


async def test_requests_to_a_sleeping_model_wait_until_it_is_loaded(
    model: STTModelHandle,
    replica: Replica,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(handles, "WAKE_S", PATIENCE_S)
    caplog.set_level(logging.INFO)
    replica.state = "asleep"
    request = TranscriptionRequest([])  # type: ignore[arg-type]
    waiting = [asyncio.create_task(model.transcribe(request)) for _ in range(5)]
    await asyncio.sleep(0.05)
    waiting[0].cancel()
    replica.state = "ready"
    answers: list[Transcript | BaseException]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [*map(id, answers[1:])] == [id(INFO)] * 4
    told = [one.getMessage() for one in caplog.records]
    assert told == ["model_waking"] + 4 * ["model_awake"]


async def test_requests_to_a_model_that_does_not_wake_are_unavailable(
    model: STTModelHandle, replica: Replica
) -> None:
    replica.state = "asleep"
    request = TranscriptionRequest([])  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(EngineLost, match="STT was ready after"):
            await model.transcribe(request)
    assert replica.cancelled == 2
    model.info = INFO
    with pytest.raises(EngineLost):  # for a minute
        await model.describe()
    replica.state = "ready"
    assert await model.describe() == INFO


async def test_a_refused_request_does_not_wait_for_a_waking_model(
    model: STTModelHandle, replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object) -> None:
        raise BackPressureError(num_queued_requests=64, max_queued_requests=64)

    monkeypatch.setattr(handles, "taken", refuse)
    replica.state = "asleep"
    with pytest.raises(EngineOverloaded):
        await model.transcribe(TranscriptionRequest([]))  # type: ignore[arg-type]


async def test_a_handle_whose_internals_changed_is_named() -> None:
    with pytest.raises(Incompatible, match="router"):
        availability(object())  # type: ignore[arg-type]


async def test_a_call_that_ray_serve_did_not_accept_is_lost(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under overload Ray raised a bare RuntimeError, which the client got as 500."""

    async def not_accepted() -> ModelInfo:
        raise RuntimeError(f"{handles.UNACCEPTED}: .")

    monkeypatch.setattr(replica, "_fetch_future_result_async", not_accepted)
    with pytest.raises(EngineLost, match="did not accept the call"):
        with handles.engine_errors("STT"):
            await replica.remote()
    with pytest.raises(RuntimeError, match="another"):
        with handles.engine_errors("STT"):
            raise RuntimeError("another")
