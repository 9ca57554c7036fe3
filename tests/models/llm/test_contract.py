"""The contract of every chat engine, with each configuration of `configs/llm`."""

import asyncio
import json
import re
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from models.errors import ContextLengthExceeded, InvalidEngineRequest
from models.llm.base import ChatEngine, ChatMessage, GenerationDelta, GenerationRequest
from models.llm.base import SamplingOptions as Sampling
from models.llm.upstream import UpstreamEngine
from models.registry import CHAT
from tests.engines.echo import EchoEngine
from tests.models.configured import configurations, configured

LONG = "Tell a long story of many words about a sailor"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}


def calling(arguments: str) -> tuple[ChatMessage, ...]:
    """A chat with a call of `weather` and its result."""
    call = {"id": "c", "type": "function"}
    calls = [{**call, "function": {"name": "weather", "arguments": arguments}}]
    return (
        ChatMessage("user", "a"),
        ChatMessage("assistant", "", {"tool_calls": calls}),
        ChatMessage("tool", "b", {"tool_call_id": "c"}),
    )


def with_parameter(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {name: {"type": "string"}}}
    return {"type": "function", "function": {"name": "weather", "parameters": parameters}}


@pytest.fixture(scope="module", params=configurations(CHAT))
def engine(request: pytest.FixtureRequest) -> ChatEngine:
    return configured(CHAT, request.param)


def ask(text: str, **sampling: Any) -> GenerationRequest:
    return GenerationRequest((ChatMessage("user", text),), Sampling(**sampling))


async def collect(engine: ChatEngine, request: GenerationRequest) -> list[GenerationDelta]:
    return [delta async for delta in engine.generate(request)]


def test_an_engine_declares_its_context_and_languages(engine: ChatEngine) -> None:
    declared = engine.capabilities
    assert declared.context_tokens > 0 and declared.max_concurrency >= 1
    assert declared.languages and all(len(code) == 2 for code in declared.languages)


async def test_the_last_delta_has_the_finish_reason_and_the_usage(engine: ChatEngine) -> None:
    deltas = await collect(engine, ask("Say hello to the world", max_tokens=12, seed=1))
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish_reason in ("stop", "length")
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.prompt_tokens > 0
    assert 0 < deltas[-1].usage.completion_tokens <= 12
    assert "".join(delta.text for delta in deltas).strip()


async def test_every_delta_has_a_usage_that_never_decreases(engine: ChatEngine) -> None:
    deltas = await collect(engine, ask("one two three four five six", max_tokens=6))
    counts = [delta.usage.completion_tokens for delta in deltas if delta.usage]
    assert counts == sorted(counts) and len(counts) == len(deltas)


async def test_an_answer_cut_by_max_tokens_finishes_with_length(engine: ChatEngine) -> None:
    deltas = await collect(engine, ask("Tell a long story of many words", max_tokens=3))
    assert deltas[-1].finish_reason == "length"
    assert deltas[-1].usage is not None and deltas[-1].usage.completion_tokens == 3


@pytest.mark.parametrize(
    "mark", ["<|im_end|>", "<|im_start|>", "<|endoftext|>", "</s>", "<end_of_turn>", "<|eot_id|>"]
)
async def test_control_tokens_that_a_user_writes_are_text(engine: ChatEngine, mark: str) -> None:
    """A control token would be one token, end the turn, and let a user forge another's message."""
    if isinstance(engine, (EchoEngine, UpstreamEngine)):
        pytest.skip("it counts words")

    filler = ChatMessage("user", "word " * engine.capabilities.context_tokens)

    async def prompt_tokens(*messages: ChatMessage, **fields: Any) -> int:
        """Counts with a prompt that is refused as too long: it is read, and not computed."""
        with pytest.raises(ContextLengthExceeded) as refusal:
            await collect(engine, GenerationRequest((*messages, filler), **fields))
        return int(re.findall(r"take (\d+) tokens", str(refusal.value))[0])

    marked = f"a{mark * 3} " * 8
    # Three control tokens, with the "a" before them, are 4 tokens more. In Qwen's vocabulary "</s>"
    # is an ordinary token.
    more = (2 if mark == "</s>" else 5) * 8
    for role in ("system", "user"):
        without = await prompt_tokens(ChatMessage(role, "a " * 8))
        assert await prompt_tokens(ChatMessage(role, marked)) >= without + more
    if not engine.capabilities.tools:
        return
    without = await prompt_tokens(*calling(json.dumps({"city": "a " * 8})))
    arguments = json.dumps({"city": marked})
    for written in (arguments, arguments.replace("<", r"\u003c")):  # encoders of Go and .NET
        assert await prompt_tokens(*calling(written)) >= without + more
    user = ChatMessage("user", "a")
    without = await prompt_tokens(user, tools=(with_parameter("a " * 8),))
    assert await prompt_tokens(user, tools=(with_parameter(marked),)) >= without + more


async def test_a_stop_text_ends_only_the_words_of_an_answer(engine: ChatEngine) -> None:
    """llama.cpp drops the beginning of a stop text at the limit, and looks for them in calls."""
    if isinstance(engine, UpstreamEngine):
        pytest.skip("the other service reads the stop texts")
    await collect(engine, ask(LONG, max_tokens=1))  # a cached prompt may be answered differently
    for most in (1, 2, 5):
        cut = await collect(engine, ask(LONG, temperature=0.0, max_tokens=most))
        plain = GenerationDelta.joined(cut)
        begun = (f"{plain.text[-3:]}\N{INTERROBANG}",)
        sampling = {"temperature": 0.0, "max_tokens": most, "stop": begun}
        stopped = GenerationDelta.joined(await collect(engine, ask(LONG, **sampling)))
        assert (stopped.text, stopped.finish_reason) == (plain.text, plain.finish_reason)
    if not engine.capabilities.tools:
        return
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    stops = ("<tool_call>", "{", '"city"', '"')
    request = ask(f"What is the weather in Oslo? {call}", max_tokens=80, stop=stops)
    called = replace(request, tools=(WEATHER,), tool_choice="required")
    answer = GenerationDelta.joined(await collect(engine, called))
    assert [json.loads(call["function"]["arguments"]).keys() for call in answer.calls()]
    assert answer.finish_reason == "tool_calls"


async def test_penalties_of_repetition_are_taken(engine: ChatEngine) -> None:
    for penalties in ({"presence_penalty": 1.0}, {"frequency_penalty": -0.5}):
        deltas = await collect(engine, ask("one two three", max_tokens=4, **penalties))
        assert deltas[-1].finish_reason in ("stop", "length")


async def test_a_paused_answer_goes_on_after_its_text(engine: ChatEngine) -> None:
    if not engine.capabilities.pausable:
        pytest.skip("its answers cannot be paused")
    request = ask("one two three four five six seven eight", max_tokens=8, temperature=0)
    whole = "".join([delta.text for delta in await collect(engine, request)])
    begun = ""
    async with aclosing(engine.generate(request)) as deltas:
        async for delta in deltas:
            begun += delta.text
            if len(begun) >= len(whole) // 3:
                break
    rest = await collect(engine, replace(request, begun=begun))
    text = "".join([delta.text for delta in rest])
    assert begun and (text or begun == whole)  # on a busy machine one delta may have all
    assert (begun + text)[: len(whole)] == whole[: len(begun + text)]


async def test_a_raw_prompt_is_continued(engine: ChatEngine) -> None:
    request = replace(ask("The capital of France is", max_tokens=4, temperature=0), is_raw=True)
    if isinstance(engine, UpstreamEngine):  # refuses raw prompts
        with pytest.raises(InvalidEngineRequest):
            await collect(engine, request)
        return
    deltas = await collect(engine, request)
    assert "".join([delta.text for delta in deltas]).strip()
    assert deltas[-1].finish_reason in ("stop", "length")
    assert deltas[-1].usage is not None and deltas[-1].usage.prompt_tokens < 10


async def test_a_prompt_longer_than_the_context_is_refused_before_the_first_delta(
    engine: ChatEngine,
) -> None:
    with pytest.raises(ContextLengthExceeded, match=str(engine.capabilities.context_tokens)):
        await anext(engine.generate(ask("word " * (engine.capabilities.context_tokens + 1))))


async def test_closing_a_generation_early_keeps_the_engine_usable(engine: ChatEngine) -> None:
    generation = engine.generate(ask("Tell a long story of many words"))
    await anext(generation)
    await generation.aclose()
    assert (await collect(engine, ask("Hello there", max_tokens=4)))[-1].usage is not None


async def test_concurrent_answers_do_not_mix(engine: ChatEngine) -> None:
    requests = [
        ask(f"Repeat: {word} {word} {word}", max_tokens=8, temperature=0.0)
        for word in ("red", "blue", "green")
    ]
    alone = [await collect(engine, request) for request in requests]
    together = await asyncio.gather(*(collect(engine, request) for request in requests))
    for one, other in zip(alone, together, strict=True):
        # Rounding depends on the batch size, so only the first words are compared.
        first, second = ("".join(d.text for d in deltas) for deltas in (one, other))
        assert first.split()[:1] == second.split()[:1]
