"""The health check by which Serve finds a replica that hangs or whose device has failed; no cluster
is needed."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from deployments.replicas import model as replica_module
from deployments.replicas.chat import ChatDeployment
from deployments.replicas.model import ModelDeployment
from deployments.replicas.stt import STTDeployment
from deployments.replicas.tts import TTSDeployment
from models import memory
from models.base import Engine
from models.errors import EngineError, EngineLost, EngineOverloaded, UnsupportedLanguage
from models.llm.base import ChatMessage, GenerationRequest
from models.stt.base import STT_SAMPLE_RATE, Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from tests.engines import ECHO, SCRIPTED, TONE
from tests.engines.broken import LOUD, Device
from tests.patience import PATIENCE_S
from tests.servers import free_port

ILLEGAL = RuntimeError("CUDA error: an illegal memory access was encountered")
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
    "VoiceOfPacks": (TTSDeployment, TONE, speak),
    "BrokenRecogniser": (STTDeployment, SCRIPTED, hear),
    "BrokenChat": (ChatDeployment, ECHO, chat),
}


def broken(folder: Path, engine: str, configuration: str) -> str:
    """The configuration with an engine of `tests.engines.broken` in its place."""
    given = yaml.safe_load(Path(configuration).read_text())
    if engine == "VoiceOfPacks":  # no sentence is known for its language
        given["voices"] = [{**given["voices"][0], "language": "eu"}]
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
    if engine == "VoiceOfPacks":
        work = speak_basque
    await work(replica)
    device.error = error
    await replica.check_health()  # it is not known yet
    with pytest.raises(type(error)):
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


async def until_healthy(replica: ModelDeployment[Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(RuntimeError, EngineError):
                return await replica.check_health()
            await asyncio.sleep(0.01)


async def speak_basque(replica: TTSDeployment) -> None:
    [_ async for _ in replica.synthesize(SynthesisRequest("kaixo", "alto", "eu"))]


async def test_one_request_that_fails_leaves_its_replica_healthy(
    tmp_path: Path, device: type[Device]
) -> None:
    replica = STTDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenRecogniser", SCRIPTED)})
    with pytest.raises(MemoryError):
        await replica.transcribe(TranscriptionRequest(np.ones_like(QUIET), "en"))
    await tried(replica)
    await replica.check_health()


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
    given = yaml.safe_load(Path(ECHO).read_text())
    away = {"engine": "openai_upstream", "url": f"http://127.0.0.1:{free_port()}", "model": "a"}
    file = tmp_path / "away.yaml"
    file.write_text(yaml.safe_dump(given | away | {"context_tokens": 2048}))
    replica = ChatDeployment()
    await replica.reconfigure({"model": str(file)})
    with pytest.raises(EngineLost):
        await chat(replica)
    await tried(replica)
    await replica.check_health()


async def test_a_batch_without_memory_is_decoded_one_by_one(
    tmp_path: Path, device: type[Device]
) -> None:
    """Only the request that needs too much alone gets the error."""
    replica = STTDeployment()
    await replica.reconfigure({"model": broken(tmp_path, "BrokenRecogniser", SCRIPTED)})
    sounds = [QUIET] * 9 + [np.ones_like(QUIET)]
    waiting = [replica.transcribe(TranscriptionRequest(pcm, "en")) for pcm in sounds]
    heard = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in heard] == [Transcript] * 9 + [MemoryError]


class Torch:
    """What of PyTorch asks the GPU, which counts its calls or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.error = error
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            empty_cache=lambda: self.note("empty_cache"),
            synchronize=lambda: self.note("synchronize"),
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


def test_a_failed_gpu_is_found_and_stops_no_clean_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch := Torch(ILLEGAL))
    with pytest.raises(RuntimeError, match="illegal memory access"):
        Engine().check_device()
    memory.give_back()
    assert torch.calls == ["synchronize", "empty_cache"]
