"""The health check by which Serve finds a replica that hangs or whose device has failed; no cluster
is needed."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from deployments.replicas import device_check
from deployments.replicas import model as replica_module
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.model import ModelDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from models import memory
from models.audio import Pcm
from models.base import Engine
from models.batch_limit import GROW_S, BatchLimit
from models.device import as_engine_error
from models.errors import (
    DeviceFailed,
    EngineError,
    EngineLost,
    EngineOverloaded,
    OutOfMemory,
    UnsupportedLanguage,
)
from models.llm.base import ChatMessage, GenerationRequest
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from telemetry import metrics
from tests.engines import ECHO, SCRIPTED, TONE
from tests.engines.broken import LONG, LOUD, TOO_LONG, Device, Network, Unrehearsed, cuda_error
from tests.patience import PATIENCE_S
from tests.servers import free_port

ILLEGAL = cuda_error()
QUIET = np.sin(np.arange(STT_SAMPLE_RATE) / 5).astype(np.float32) * LOUD


async def speak(replica: TTSDeployment) -> None:
    [_ async for _ in replica.synthesize(SynthesisRequest("hello", "alto", "en"))]


async def hear(replica: STTDeployment) -> None:
    await replica.transcribe(TranscriptionRequest(QUIET, "en"))


async def chat(replica: ChatDeployment) -> None:
    [_ async for _ in replica.generate(GenerationRequest((ChatMessage("user", "hello"),)))]


Work = Callable[[Any], Awaitable[None]]
KINDS: dict[str, tuple[type[ModelDeployment[Any]], str, Work]] = {
    "BrokenVoice": (TTSDeployment, TONE, speak),
    "BrokenRecogniser": (STTDeployment, SCRIPTED, hear),
    "BrokenChat": (ChatDeployment, ECHO, chat),
}


def broken(folder: Path, engine: str, configuration: str) -> str:
    """The configuration with an engine of `tests.engines.broken` in its place."""
    given = yaml.safe_load(Path(configuration).read_text())
    file = folder / f"{engine}.yaml"
    file.write_text(yaml.safe_dump(given | {"engine": f"tests.engines.broken:{engine}"}))
    return str(file)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Device]]:
    monkeypatch.setattr(Device, "error", None)
    yield Device


async def tried(replica: ModelDeployment[Any]) -> None:
    """Returns when no engine is tried any more. Raises what the health check raises before."""
    async with asyncio.timeout(PATIENCE_S):
        while any("_try_until_it_works" in repr(task) for task in asyncio.all_tasks()):
            await replica.check_health()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("deployment", [TTSDeployment, STTDeployment, ChatDeployment])
def test_each_deployment_has_an_async_health_check(deployment: type[ModelDeployment[Any]]) -> None:
    # A coroutine times out on a blocked event loop; Serve's default check would still pass.
    assert inspect.iscoroutinefunction(deployment.check_health)


@pytest.mark.parametrize("engine", KINDS)
@pytest.mark.parametrize("error", [ILLEGAL, EngineLost("the worker died"), EngineError("broken")])
@pytest.mark.parametrize("is_used", [True, False])
async def test_a_replica_whose_device_failed_is_unhealthy_until_it_works(
    tmp_path: Path,
    device: type[Device],
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    error: Exception,
    is_used: bool,
) -> None:
    monkeypatch.setattr(replica_module, "TRIALS_S", 0.05)
    kind, configuration, work = KINDS[engine]
    replica = kind()  # type: ignore[call-arg]  # each kind has no arguments
    await replica.reconfigure({"model": broken(tmp_path, engine, configuration)})
    await work(replica)
    device.error = error
    await replica.check_health()  # it is not known yet
    with pytest.raises(DeviceFailed if error is ILLEGAL else type(error)):
        await work(replica)
    with pytest.raises(type(error), match=str(error)):
        await tried(replica)
    for _ in range(3):  # after which Serve restarts it
        with pytest.raises(type(error), match=str(error)):
            await replica.check_health()
    device.error = None
    if is_used:
        await work(replica)
    else:
        await until_healthy(replica)
    await replica.check_health()


def away(folder: Path) -> str:
    """The configuration of a model of another service, which does not answer."""
    given = yaml.safe_load(Path(ECHO).read_text())
    upstream = {"engine": "openai_upstream", "url": f"http://127.0.0.1:{free_port()}", "model": "a"}
    file = folder / "away.yaml"
    file.write_text(yaml.safe_dump(given | upstream | {"context_tokens": 2048}))
    return str(file)


async def until_healthy(replica: ModelDeployment[Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(RuntimeError, EngineError):
                return await replica.check_health()
            await asyncio.sleep(0.01)


async def test_one_request_that_fails_leaves_its_replica_healthy(
    tmp_path: Path, device: type[Device]
) -> None:
    replica = STTDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenRecogniser", SCRIPTED)})
    with pytest.raises(OutOfMemory):
        await replica.transcribe(TranscriptionRequest(np.ones_like(QUIET), "en"))
    await tried(replica)
    await replica.check_health()


async def test_trials_without_memory_leave_the_replica_healthy(
    tmp_path: Path, device: type[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_module, "TRIALS_S", 0.01)
    replica = ChatDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenChat", ECHO)})
    device.error = MemoryError("CUDA out of memory")
    with pytest.raises(OutOfMemory):
        await chat(replica)
    for _ in range(10):
        await asyncio.sleep(0.02)
        await replica.check_health()
    assert replica._trial is not None and not replica._trial.done()  # it goes on trying
    device.error = ILLEGAL
    with pytest.raises(type(ILLEGAL), match="illegal"):
        await tried(replica)
    device.error = None
    await until_healthy(replica)


async def test_an_upstream_service_without_memory_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = ChatDeployment()
    await replica.reconfigure({"model": away(tmp_path)})

    def refused(_engine: Any, _request: GenerationRequest) -> Any:
        raise EngineError("its answer was 'out of memory'")

    monkeypatch.setattr(type(replica.engine()), "generate", refused)
    with pytest.raises(EngineError) as raised:
        await chat(replica)
    assert raised.type is EngineError


@pytest.mark.parametrize("error", [EngineOverloaded("full"), UnsupportedLanguage("not this one")])
async def test_a_refusal_does_not_have_the_engine_tried(
    tmp_path: Path, device: type[Device], error: Exception
) -> None:
    replica = STTDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenRecogniser", SCRIPTED)})
    device.error = error
    with pytest.raises(type(error)):
        await hear(replica)
    await tried(replica)
    await replica.check_health()


async def test_a_failure_of_another_service_is_not_one_of_the_replica(tmp_path: Path) -> None:
    replica = ChatDeployment()
    await replica.reconfigure({"model": away(tmp_path)})
    with pytest.raises(EngineLost):
        await chat(replica)
    await tried(replica)
    await replica.check_health()


async def test_a_batch_without_memory_is_decoded_in_parts_and_limits_later_ones(
    tmp_path: Path, device: type[Device]
) -> None:
    """Only the request that needs too much alone gets the error."""
    replica = STTDeployment()
    replica._limit = BatchLimit(lambda: clock)
    clock = 0.0
    await replica.reconfigure({"model": broken(tmp_path, "BrokenRecogniser", SCRIPTED)})
    sounds = [QUIET] * 9 + [np.ones_like(QUIET)]
    waiting = [replica.transcribe(wanted(pcm)) for pcm in sounds]
    heard = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in heard] == [Transcript] * 9 + [OutOfMemory]
    assert replica._limit.of(16) == 16  # the request that was too large has ended
    assert all(await asyncio.gather(*[replica.transcribe(wanted(QUIET)) for _ in range(9)]))
    limit = replica._limit.of(16)
    assert 0 < limit < TOO_LONG and metrics.batch_limit._value.get() == limit
    while limit < 16:
        clock += GROW_S
        limit *= 2
        assert replica._limit.of(16) == limit
    assert metrics.batch_limit._value.get() == 0


def wanted(pcm: Pcm) -> TranscriptionRequest:
    return TranscriptionRequest(pcm, "en")


async def test_a_sentence_without_memory_fails_alone(tmp_path: Path, device: type[Device]) -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenVoice", TONE)})
    begun = replica.synthesize(SynthesisRequest("some words to say", "alto", "en"))
    await anext(begun)
    with pytest.raises(OutOfMemory):
        [_ async for _ in replica.synthesize(SynthesisRequest(LONG, "alto", "en"))]
    assert len([chunk async for chunk in begun]) > 1
    await tried(replica)
    await replica.check_health()


async def test_a_chat_without_memory_fails_alone(tmp_path: Path, device: type[Device]) -> None:
    replica = ChatDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenChat", ECHO)})
    failed = metrics.out_of_memory._value.get()
    begun = replica.generate(GenerationRequest((ChatMessage("user", "some words"),)))
    text = (await anext(begun)).text
    with pytest.raises(OutOfMemory):
        [_ async for _ in replica.generate(GenerationRequest((ChatMessage("user", LONG),)))]
    assert text + "".join([delta.text async for delta in begun]) == "some words"
    assert metrics.out_of_memory._value.get() == failed + 1
    await tried(replica)
    await replica.check_health()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), OutOfMemory),
        (EngineError("MemoryError"), OutOfMemory),  # of a process of Whisper
        (EngineError("std::bad_alloc: cudaErrorMemoryAllocation"), OutOfMemory),
        (RuntimeError("CUDA failed with error out of memory"), OutOfMemory),
        (RuntimeError("cuda error: CUBLAS_STATUS_ALLOC_FAILED"), OutOfMemory),
        (EngineLost("the model stopped: CUDA out of memory. Tried to allocate"), OutOfMemory),
        (cuda_error("CUDA error: device-side assert triggered"), DeviceFailed),
        (cuda_error("Error in execution: CUDA error: uncorrectable ECC error"), DeviceFailed),
        (RuntimeError("CUDA failed with error unspecified launch failure"), DeviceFailed),
        (UnsupportedLanguage("no 'out of memory'"), UnsupportedLanguage),  # text of a user
        (ValueError("'CUDA error' is no word"), ValueError),
        (ValueError("no 'out of memory', nor 'bad_alloc'"), ValueError),
        (RuntimeException("Failed to allocate memory for buffer"), OutOfMemory),
    ],
)
def test_errors_of_libraries_are_told_apart(error: Exception, kind: type[Exception]) -> None:
    failure = as_engine_error(error)
    assert type(failure) is kind
    if failure is not error:
        assert isinstance(failure, EngineError) and failure.retryable
        assert failure.__traceback__ is None and failure.__context__ is None


async def test_the_health_check_asks_the_device_before_any_request_fails(
    tmp_path: Path, device: type[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = TTSDeployment()
    await replica.check_health()  # nothing is loaded yet
    await replica.reconfigure({"model": broken(tmp_path, "IdleVoice", TONE)})
    await replica.check_health()
    device.error = ILLEGAL
    with pytest.raises(type(ILLEGAL), match="illegal"):
        await replica.check_health()
    device.error = None
    await replica.check_health()
    monkeypatch.setattr(device_check, "ANSWER_S", 0.05)
    device.answers.clear()
    try:
        for _ in range(3):
            with pytest.raises(DeviceFailed, match="no answer"):
                await replica.check_health()
        assert [thread.name for thread in threading.enumerate()].count("device") == 1
    finally:
        device.answers.set()
    await until_healthy(replica)


class SlowToForget(ThreadPoolExecutor):
    """Keeps what it was given, as its threads do until they ask for more work."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[object] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.kept.append((fn, args, kwargs))
        return super().submit(fn, *args, **kwargs)


@pytest.mark.parametrize("engine", ["Unloadable", "Unrehearsed"])
@pytest.mark.parametrize("is_canary", [False, True])
async def test_a_swap_that_fails_frees_the_new_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, is_canary: bool
) -> None:
    logged: list[str] = []

    def log(_event: str, *, extra: dict[str, str], exc_info: BaseException | None) -> None:
        logged.append(extra["reason"])  # pytest would keep the error, with its frames

    monkeypatch.setattr(replica_module.logger, "error", log)
    monkeypatch.setattr(Unrehearsed, "closed", 0)
    asyncio.get_running_loop().set_default_executor(SlowToForget())
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})
    name = broken(tmp_path, engine, TONE)
    canary = {"model": TONE, "canary": {"model": name, "share": 0.5}}
    await replica.reconfigure(canary if is_canary else {"model": name})
    assert (await replica.describe()).id == "svc/tts-tone" and len(replica.engines()) == 1
    assert len(logged) == 1 and "out of memory" in logged[0]
    assert not Network.live, "the new model still takes memory"
    assert Unrehearsed.closed == (engine == "Unrehearsed"), "closed after its rehearsal alone"


class Torch:
    """What of PyTorch asks the GPU, which counts its calls or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.error = error
        event = SimpleNamespace(synchronize=lambda: self.note("synchronize"))
        stream = SimpleNamespace(record_event=lambda: event)
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: True,
            device_count=lambda: 2,
            memory_allocated=lambda number: number,  # of the second GPU alone
            Stream=lambda number, priority: stream,
            empty_cache=lambda: self.note("empty_cache"),
        )

    def note(self, call: str) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


async def test_a_swap_that_fails_gives_back_what_it_took_of_the_gpu(
    tmp_path: Path, device: type[Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = TTSDeployment()
    await replica.reconfigure({"model": TONE})
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    device.error = ILLEGAL
    await replica.reconfigure({"model": broken(tmp_path, "BrokenVoice", TONE)})
    assert (await replica.describe()).id == "svc/tts-tone"
    loaded = torch.calls.count("empty_cache")  # also once when the model was loaded
    assert loaded == 2


def test_a_failed_gpu_is_found_and_stops_no_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch := Torch(ILLEGAL))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Engine().check_device()
    memory.give_back()
    assert torch.calls == ["synchronize", "empty_cache"]
