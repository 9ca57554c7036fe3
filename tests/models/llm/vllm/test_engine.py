"""vLLM as an engine: isolation of tenants, constrained answers, its processes and their deaths."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

# To start takes a minute: three processes import vLLM.
pytestmark = [pytest.mark.vllm, pytest.mark.weights, pytest.mark.timeout(1200)]
HANDLERS = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
pytest.importorskip("vllm", reason="vLLM is not installed; `make test-vllm` runs these tests")
torch = pytest.importorskip("torch")

from models.errors import DeviceFailed, EngineError, EngineLost  # noqa: E402
from models.llm.base import ChatMessage, GenerationRequest, SamplingOptions  # noqa: E402
from models.llm.structured_output.ast import SchemaError  # noqa: E402
from models.llm.token_engine import Step  # noqa: E402
from models.llm.vllm.batch import VllmBatch, VllmStream  # noqa: E402
from models.llm.vllm.engine import VllmEngine  # noqa: E402
from tests.models.llm.transformers.tiny_chat import (  # noqa: E402
    SCHEMA,
    TOOLS,
    ask,
    deltas_of,
    text_of,
)
from tests.models.llm.vllm.smollm import CONTEXT, smollm_config  # noqa: E402
from tests.models.weights.one_folder import OneFolder  # noqa: E402

FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
LONG = "The rules of this game are simple, and each player knows them well. " * 25
PATIENCE_S = 200


def core_processes(parent: int) -> list[int]:
    """Return the processes of vLLM that a process has started, and their own."""
    children: list[int] = []
    waiting = [parent]
    while waiting:
        listed = Path(f"/proc/{waiting[0]}/task").glob("*/children")
        waiting += [int(pid) for path in listed for pid in path.read_text().split()]
        children.append(waiting.pop(0))
    names = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in children[1:]}
    return [pid for pid, name in names.items() if name.startswith("VLLM")]


async def until_dead(pids: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while any(is_alive(pid) for pid in pids):
            await asyncio.sleep(0.1)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "State:\tZ" not in status


async def test_the_model_answers_a_question(engine: VllmEngine) -> None:
    question = ask("What is the capital of France?", temperature=0.0, max_tokens=12)
    assert "Paris" in await text_of(engine, question)


def test_the_device_is_that_of_the_installed_build(engine: VllmEngine) -> None:
    assert engine.capabilities.device == ("cuda" if torch.cuda.is_available() else "cpu")


async def test_the_same_seed_gives_the_same_answer(engine: VllmEngine) -> None:
    request = ask("Name an animal.", seed=7, temperature=1.2, top_k=0, top_p=1.0, max_tokens=16)
    first = await text_of(engine, request)
    assert await text_of(engine, request) == first
    other = replace(request, sampling=replace(request.sampling, seed=8))
    assert await text_of(engine, other) != first


async def test_cached_prefixes_are_counted_and_never_shared_between_tenants(
    engine: VllmEngine,
) -> None:
    cached = []
    for owner in ("a", "b", "a", ""):
        request = replace(ask(LONG, temperature=0.0, max_tokens=2), owner=owner)
        usage = (await deltas_of(engine, request))[-1].usage
        assert usage is not None
        cached.append(usage.cached_tokens)
    assert cached[0] == cached[1] == cached[3] == 0
    assert cached[2] >= 128


async def test_a_stop_sequence_ends_the_answer_and_is_not_in_it(engine: VllmEngine) -> None:
    request = ask("What is the capital of France?", temperature=0.0, max_tokens=20)
    whole = await text_of(engine, request)
    stop = whole[5:8]
    stopped = await deltas_of(
        engine, replace(request, sampling=replace(request.sampling, stop=(stop,)))
    )
    assert "".join(delta.text for delta in stopped) == whole[: whole.find(stop)]
    assert stopped[-1].finish_reason == "stop"


@pytest.mark.parametrize("seed", range(3))
async def test_structured_output_obeys_its_schema(engine: VllmEngine, seed: int) -> None:
    request = replace(ask("Paint it.", seed=seed, temperature=1.5, top_k=0), response_format=FORM)
    deltas = await deltas_of(engine, request)
    assert deltas[-1].finish_reason == "stop"
    validate(json.loads("".join(delta.text for delta in deltas)), SCHEMA)


async def test_a_schema_of_llguidance_is_obeyed(engine: VllmEngine) -> None:
    names = {"type": "object", "patternProperties": {"^a+$": {"type": "boolean"}}}
    schema = {**names, "additionalProperties": False, "required": ["aaaaaaaaaaaaaaa"]}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    request = replace(ask("List.", temperature=0.0, max_tokens=12), response_format=form)
    assert (await text_of(engine, request)).startswith('{"aaaa')


async def test_a_schema_that_nothing_compiles_is_refused(engine: VllmEngine) -> None:
    schema = {"type": "string", "pattern": "(?<=x)y"}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with pytest.raises(SchemaError):
        await deltas_of(engine, replace(ask(), response_format=form))


async def test_a_required_call_has_valid_arguments(engine: VllmEngine) -> None:
    request = ask("Paint it red.", temperature=0.0)
    request = replace(request, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    deltas = await deltas_of(engine, request)
    calls = [call for delta in deltas for call in delta.tool_calls]
    assert deltas[-1].finish_reason == "tool_calls" and calls[0]["function"]["name"] == "paint"
    validate(json.loads("".join(call["function"]["arguments"] for call in calls)), SCHEMA)


async def test_more_requests_than_the_batch_capacity_all_finish(engine: VllmEngine) -> None:
    requests = [
        replace(ask(str(number), max_tokens=3), is_speculative=number % 2 == 0)
        for number in range(20)
    ]
    answers = await asyncio.gather(*(deltas_of(engine, request) for request in requests))
    assert all(deltas[-1].finish_reason for deltas in answers)


async def test_closing_a_stream_stops_its_generation(engine: VllmEngine) -> None:
    async with aclosing(engine.generate(ask("Tell a long story.", temperature=1.0))) as stream:
        await anext(stream)
    llm = engine._batch._llm
    async with asyncio.timeout(PATIENCE_S):
        while llm.get_num_unfinished_requests():
            await asyncio.sleep(0.01)


def test_signal_handlers_stay_those_of_the_service(engine: VllmEngine) -> None:
    assert {signum: signal.getsignal(signum) for signum in HANDLERS} == HANDLERS


async def test_a_killed_core_raises_engine_lost_from_then_on(
    smollm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = core_processes(os.getpid())
    with TemporaryDirectory() as base:
        monkeypatch.setenv("VLLM_RPC_BASE_PATH", base)
        failing = VllmEngine(smollm_config(), OneFolder(smollm))
        assert os.environ["VLLM_RPC_BASE_PATH"] == base
        (sockets,) = Path(base).iterdir()
        assert any(sockets.iterdir())
        failing.check_device()
        running = failing.generate(ask("Tell a long story.", temperature=1.0))
        await anext(running)
        own = [pid for pid in core_processes(os.getpid()) if pid not in before]
        os.kill(own[0], signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(EngineLost, match="stopped"):
                async for _ in running:
                    pass
        with pytest.raises(EngineLost):
            await deltas_of(failing, ask())
        with pytest.raises(EngineLost):
            failing.check_device()
        await asyncio.to_thread(failing.close)
        await until_dead(own)
        assert not sockets.exists()


async def test_a_core_that_hangs_fails_the_check_of_the_device(engine: VllmEngine) -> None:
    engine.check_device()
    running = engine.generate(ask("Tell a long story.", temperature=1.0))
    await anext(running)
    own = core_processes(os.getpid())
    for pid in own:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(DeviceFailed, match="no answer"):
            await asyncio.to_thread(engine.check_device)
    finally:
        for pid in own:
            os.kill(pid, signal.SIGCONT)
    await running.aclose()
    await asyncio.to_thread(engine.check_device)


async def test_tokens_before_an_error_are_taken_first() -> None:
    stream = VllmStream()
    for item in (Step((1,), False), Step((2,), False), EngineLost("the model stopped")):
        stream.push(item)
    await asyncio.sleep(0.01)
    assert (await stream.take()).tokens == (1, 2)
    with pytest.raises(EngineLost, match="stopped"):
        await stream.take()


async def test_a_model_whose_vocabulary_cannot_be_read_leaves_no_process(
    smollm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vocabulary(_batch: VllmBatch) -> None:
        raise OSError("no generation_config.json")

    before = core_processes(os.getpid())
    monkeypatch.setattr(VllmBatch, "_vocabulary", vocabulary)
    with pytest.raises(OSError, match="generation_config"):
        VllmBatch(smollm, smollm_config())
    await until_dead([pid for pid in core_processes(os.getpid()) if pid not in before])


OWNER = """
import sys, time
from pathlib import Path
from models.llm.vllm.engine import VllmEngine
from tests.models.llm.vllm.smollm import smollm_config
from tests.models.weights.one_folder import OneFolder

if __name__ == "__main__":
    engine = VllmEngine(smollm_config(), OneFolder(Path(sys.argv[1])))
    print("loaded", flush=True)
    time.sleep(600)
"""


async def test_vllm_ends_with_a_replica_that_is_killed(smollm: Path, tmp_path: Path) -> None:
    program = tmp_path / "owner.py"
    program.write_text(OWNER)
    owner = subprocess.Popen([sys.executable, program, smollm], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        lines = iter(owner.stdout.readline, "")
        assert any(line.strip() == "loaded" for line in lines)
        own = core_processes(owner.pid)
        assert own
        owner.kill()
    await until_dead(own)


def test_an_engine_that_cannot_load_raises_the_reason(smollm: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="max_model_len"):
        VllmEngine(smollm_config(context_tokens=100 * CONTEXT), OneFolder(smollm))
    with pytest.raises(EngineError, match="cannot be loaded"):
        VllmEngine(smollm_config(), OneFolder(tmp_path))


async def test_earlier_messages_are_in_the_prompt(engine: VllmEngine) -> None:
    messages = (
        ChatMessage("user", "My name is Zebulon. Remember it."),
        ChatMessage("assistant", "Hello Zebulon."),
        ChatMessage("user", "What is my name?"),
    )
    request = GenerationRequest(messages, SamplingOptions(temperature=0.0, max_tokens=16))
    assert "Zebulon" in await text_of(engine, request)


async def test_a_closed_engine_raises_and_ends_its_processes(engine: VllmEngine) -> None:
    """The last test of this folder, because a start takes long."""
    own = core_processes(os.getpid())
    assert own
    running = engine.generate(ask("Tell a long story.", temperature=1.0))
    await anext(running)
    await asyncio.to_thread(engine.close)
    with pytest.raises(EngineLost):
        async for _ in running:
            pass
    with pytest.raises(EngineLost):
        await deltas_of(engine, ask())
    await until_dead(own)
