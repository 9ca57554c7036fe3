import asyncio
import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.schema.models.llm import DraftConfig
from models.errors import EngineError, UnsupportedFeature, WeightsMissing
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest
from models.llm.base import SamplingOptions as Sampling
from models.llm.llama_cpp import LlamaCppEngine
from models.llm.prompt_queue import LONG_CHARS, PromptQueue
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.gguf_files import write_gguf
from tests.models.llm.llama_cpp.smollm import SMOLLM
from tests.patience import PATIENCE_S, until
from tests.processes import command_of, exposed, listeners

pytestmark = pytest.mark.weights

# A template by which llama.cpp knows that the model reasons, and begins with it.
REASONING = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}
"""


@pytest.fixture(scope="module")
def engine(weights: WeightStore) -> LlamaCppEngine:
    """One slot, so that a slot which is not freed blocks the next request."""
    return make_engine(weights, batch_tokens=64)


@pytest.fixture(scope="module")
def wide_engine(weights: WeightStore) -> LlamaCppEngine:
    return make_engine(weights, batch_tokens=32, parallel=3)


def make_engine(weights: WeightStore, **options: Any) -> LlamaCppEngine:
    try:
        return LlamaCppEngine(SMOLLM.model_copy(update=options), weights)
    except WeightsMissing as error:
        pytest.skip(str(error))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux lists mappings")
def test_the_file_is_not_in_memory_beside_the_weights(
    engine: LlamaCppEngine, weights: WeightStore
) -> None:
    file = (weights.folder(SMOLLM.weights) / "model.gguf").resolve()
    assert str(file) not in Path("/proc/self/maps").read_text()


def ask(text: str, **sampling: Any) -> GenerationRequest:
    return GenerationRequest((ChatMessage("user", text),), Sampling(**sampling))


async def collect(engine: LlamaCppEngine, request: GenerationRequest) -> list[GenerationDelta]:
    return [delta async for delta in engine.generate(request)]


async def text_of(engine: LlamaCppEngine, request: GenerationRequest) -> str:
    return "".join([delta.text async for delta in engine.generate(request)])


class RecordingServer:
    """Forwards requests to llama.cpp; records what each chunk's callback returned: True stops."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.stops: list[list[bool]] = []  # of each request, for each of its chunks

    def handle_chat_completions(self, body: Any, push: Callable[[Any], bool]) -> None:
        stops: list[bool] = []
        self.stops.append(stops)

        def record(chunk: Any) -> bool:
            stops.append(push(chunk))
            return stops[-1]

        self._server.handle_chat_completions(body, record)


@pytest.fixture
def server(engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch) -> RecordingServer:
    recording = RecordingServer(engine._server)
    monkeypatch.setattr(engine, "_server", recording)
    return recording


def test_the_port_that_llama_cpp_opens_is_on_the_loopback(engine: LlamaCppEngine) -> None:
    found = listeners(os.getpid())
    assert len(found[command_of(os.getpid())]) >= 1
    assert not exposed(found)


async def test_closing_the_generator_frees_its_slot_for_the_next_request(
    engine: LlamaCppEngine, server: RecordingServer
) -> None:
    generation = engine.generate(ask("Tell a very long story.", temperature=0.0))
    await anext(generation)
    await generation.aclose()
    assert server.stops[0][-1]  # its thread has ended: none waits behind a cancelled request
    assert await text_of(engine, ask("Hi", max_tokens=2, temperature=0.0))
    story, answer = server.stops
    assert story[-1] and story.count(True) == 1  # llama.cpp stopped at the next chunk
    assert not any(answer)


@pytest.mark.slow
async def test_cancelling_a_request_frees_its_slot_before_the_prompt_is_processed_completely(
    engine: LlamaCppEngine, server: RecordingServer
) -> None:
    await text_of(engine, ask("alpha " * 800, max_tokens=1))
    reading = asyncio.ensure_future(anext(engine.generate(ask("omega " * 800, max_tokens=1))))
    await until(lambda: len(server.stops) >= 2 and server.stops[1], every_s=0.001)
    reading.cancel()
    assert await text_of(engine, ask("Hi", max_tokens=2, temperature=0.0))
    whole, cancelled, _ = server.stops  # a chunk for each batch of the prompt, and the answer's
    assert cancelled[-1] and cancelled.count(True) == 1
    assert len(cancelled) < len(whole) / 2


@pytest.mark.slow
async def test_a_long_prompt_pauses_for_a_short_one_of_another_tenant(
    wide_engine: LlamaCppEngine,
) -> None:
    said = replace(ask("alpha " * 800, max_tokens=4, temperature=0.0), owner="long")
    whole = await collect(wide_engine, said)
    paused = asyncio.create_task(collect(wide_engine, replace(said, owner="another")))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(PATIENCE_S):
        short = replace(ask("Say hi", max_tokens=4), owner="short")
        assert await collect(wide_engine, short)
        assert not paused.done()
        answer = await paused
    assert "".join(one.text for one in answer) == "".join(one.text for one in whole)
    assert answer[-1].usage == whole[-1].usage


async def test_long_prompts_are_processed_one_at_a_time_of_tenants_in_turn() -> None:
    queue = PromptQueue()
    order: list[str] = []

    async def read(owner: str, length: int) -> None:
        async with queue.stream(replace(ask("x" * length), owner=owner)) as prompt:
            order.append(owner)
            await asyncio.sleep(0.01)
            await prompt.finish()

    begun = [asyncio.create_task(read("flood", LONG_CHARS + 1)) for _ in range(4)]
    await asyncio.sleep(0)
    begun += [asyncio.create_task(read("short", 1)), asyncio.create_task(read("long", 2000))]
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*begun)
    assert order[:3] == ["flood", "short", "long"]


async def test_cancelled_long_prompts_leave_room_for_a_new_one() -> None:
    """Each was cancelled in its first batch, and so the next one kept every other prompt out."""
    queue = PromptQueue()
    running = 0

    async def flood() -> None:
        nonlocal running
        async with queue.stream(replace(ask("x" * 2000), owner="flood")):
            running += 1
            try:
                await asyncio.sleep(0.1)
            finally:
                running -= 1

    floods = [asyncio.create_task(flood()) for _ in range(4)]
    while not running:
        await asyncio.sleep(0)
    free = 0
    async with queue.stream(replace(ask("Hi"), owner="short")) as short:
        for _ in range(14):  # in the work of the first, and in the pause of twice its time
            await asyncio.sleep(0.02)
            free += not running
        assert 3 <= free < 14
        await short.finish()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*floods)


async def test_a_request_that_waits_for_a_slot_can_be_cancelled(engine: LlamaCppEngine) -> None:
    first = engine.generate(ask("Tell a very long story."))
    await anext(first)
    waiting = asyncio.ensure_future(anext(engine.generate(ask("Me too"))))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await first.aclose()
    assert await text_of(engine, ask("Hi", max_tokens=2))


async def test_characters_of_several_tokens_are_never_split(engine: LlamaCppEngine) -> None:
    request = GenerationRequest(
        (
            ChatMessage("user", "Repeat: 😀😀😀😀"),
            ChatMessage("assistant", "😀😀😀😀"),
            ChatMessage("user", "Again: 😀😀😀😀"),
        ),
        Sampling(temperature=0.0, max_tokens=10),
    )
    deltas = [delta async for delta in engine.generate(request)]
    assert "😀" in "".join(delta.text for delta in deltas)
    assert all("\ufffd" not in delta.text for delta in deltas)


async def test_a_stop_sequence_ends_the_answer_and_is_not_in_it(engine: LlamaCppEngine) -> None:
    request = GenerationRequest(
        (
            ChatMessage("user", "Count: 1, 2, 3"),
            ChatMessage("assistant", "1, 2, 3, 4, 5, 6, 7, 8, 9"),
            ChatMessage("user", "Count again."),
        ),
        Sampling(temperature=0.0, max_tokens=60, stop=("3",)),
    )
    deltas = [delta async for delta in engine.generate(request)]
    assert "3" not in "".join(delta.text for delta in deltas)
    assert deltas[-1].finish_reason == "stop"


async def test_a_stop_sequence_does_not_apply_to_reasoning(
    weights: WeightStore, tmp_path: Path
) -> None:
    template = tmp_path / "reasoning.jinja"
    template.write_text(REASONING)
    engine = make_engine(weights, chat_template=str(template))
    asked = ask("Count from one to five.", temperature=0.0, max_tokens=20, stop=(" ", "\n"))
    deltas = await collect(engine, replace(asked, enable_thinking=True))
    assert len(GenerationDelta.joined(deltas).reasoning.split()) > 2


async def test_the_same_seed_gives_the_same_answer(engine: LlamaCppEngine) -> None:
    answers = {
        await text_of(engine, ask("Name an animal.", seed=seed, temperature=1.5, max_tokens=12))
        for seed in (7, 7, 7)
    }
    assert len(answers) == 1


@pytest.mark.slow
async def test_an_answer_ends_with_length_when_the_context_is_full(engine: LlamaCppEngine) -> None:
    schema = {"type": "string", "minLength": 1000}  # no answer can end before
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    request = replace(ask("word " * 950), response_format=form)
    deltas = [delta async for delta in engine.generate(request)]
    assert deltas[-1].finish_reason == "length" and deltas[-1].usage is not None
    assert deltas[-1].usage.total_tokens == engine.capabilities.context_tokens


async def test_a_slow_reader_gets_many_tokens_in_one_delta(engine: LlamaCppEngine) -> None:
    generation = engine.generate(ask("Tell a long story.", max_tokens=40, temperature=0.0))
    await anext(generation)
    began = time.monotonic()
    deltas = [await anext(generation)]
    time.sleep(max(1.0, 10 * (time.monotonic() - began)))  # the loop is busy; llama.cpp is not
    deltas += [delta async for delta in generation]
    assert max(len(delta.text.split()) for delta in deltas) > 3


async def test_tools_are_refused_by_a_model_without_tool_support(engine: LlamaCppEngine) -> None:
    request = GenerationRequest((ChatMessage("user", "Hi"),), tools=({"type": "function"},))
    with pytest.raises(UnsupportedFeature):
        await anext(engine.generate(request))


async def test_messages_of_every_role_are_accepted(engine: LlamaCppEngine) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request = GenerationRequest(
        (
            ChatMessage("system", "Be brief."),
            ChatMessage("user", "Hi"),
            ChatMessage("assistant", "", {"tool_calls": [call]}),
            ChatMessage("tool", "sunny", {"tool_call_id": "a"}),
            ChatMessage("assistant", "Hello"),
        ),
        Sampling(max_tokens=3),
        enable_thinking=True,
    )
    assert [delta async for delta in engine.generate(request)][-1].usage is not None


async def test_a_draft_model_changes_the_speed_and_not_the_answer(
    engine: LlamaCppEngine, weights: WeightStore
) -> None:
    drafted = make_engine(weights, batch_tokens=64, draft=DraftConfig(weights=SMOLLM.weights))
    timings: list[dict[str, Any]] = []
    server = drafted._server

    class Recording:
        def handle_chat_completions(self, body: Any, push: Callable[[Any], bool]) -> None:
            def record(chunk: Any) -> bool:
                timings.append(chunk.get("timings", {}))
                return push(chunk)

            server.handle_chat_completions(body, record)

    drafted._server = Recording()
    request = ask("Count from one to twenty in words.", max_tokens=24, temperature=0.0)
    # Of an owner whose cache is empty: a prefix of another test would shift the batches, which can
    # change a token that has a close second.
    request = replace(request, owner="draft")
    plain, quick = await collect(engine, request), await collect(drafted, request)
    assert GenerationDelta.joined(quick).text == GenerationDelta.joined(plain).text
    assert quick[-1].usage == plain[-1].usage
    assert timings[-1]["draft_n_accepted"] > 8  # the model agrees with itself
    cut = await collect(drafted, ask("Tell a long story.", max_tokens=5, temperature=0.0))
    assert cut[-1].usage is not None and cut[-1].usage.completion_tokens == 5


def test_a_draft_model_with_another_vocabulary_or_that_is_none_is_refused(
    weights: WeightStore, tmp_path: Path
) -> None:
    write_gguf(tmp_path / "other.gguf", tokenizer__ggml__tokens=["<s>", *"abcdefgh"])
    (tmp_path / "none.gguf").write_bytes(b"no model")
    for name, message in (("other", "cannot draft for .*vocabulary"), ("none", "cannot be read")):
        draft = DraftConfig(weights=str(tmp_path / f"{name}.gguf"), unverified=True)
        with pytest.raises(EngineError, match=f"{name}.gguf {message}"):
            make_engine(weights, draft=draft)


async def test_penalties_of_repetition_take_no_memory(engine: LlamaCppEngine) -> None:
    """A window of 2**31 tokens took 8.6 GB with the first request."""

    def peak_kb() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = peak_kb()
    asked = ask("Say hello.", max_tokens=4, presence_penalty=0.5, frequency_penalty=0.5)
    assert await text_of(engine, asked)
    assert peak_kb() - before < 200_000
