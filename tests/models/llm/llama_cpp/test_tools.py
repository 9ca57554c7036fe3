"""Tool calls, structured output and the prompt cache, with real weights."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from models.errors import InvalidEngineRequest, WeightsMissing
from models.llm.base import (
    ChatMessage,
    FinishReason,
    GenerationDelta,
    GenerationRequest,
    SamplingOptions,
    TokenUsage,
)
from models.llm.llama_cpp import LlamaCppEngine
from models.llm.structured_output.ast import SchemaError
from models.weights.store import WeightStore
from tests.models.llm.llama_cpp.smollm import SMOLLM
from tests.models.llm.structured_output.schemas import BAD, GOOD, record, strings

pytestmark = pytest.mark.weights

PLACE = record({"city": strings(), "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "city")
TOOLS: tuple[dict[str, Any], ...] = (
    {"type": "function", "function": {"name": "get_weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": "clock", "description": "The time"}},
)
TAKEN_BY_LLGUIDANCE = {"patternProperties", "multipleOf", "alternative to itself", "allOf", "const"}
TAKEN_BY_LLGUIDANCE |= {"flags", "may be empty"}
PATTERNED = {
    "type": "object",
    "patternProperties": {"^[a-c]$": {"type": "integer", "multipleOf": 7, "maximum": 99}},
    "additionalProperties": False,
    "minProperties": 1,
}
CONFIG = SMOLLM.model_copy(update={"parallel": 2, "threads": 2, "chat_template": "smollm2.jinja"})


@pytest.fixture(scope="module")
def engine(weights: WeightStore) -> LlamaCppEngine:
    try:
        return LlamaCppEngine(CONFIG, weights)
    except WeightsMissing as error:
        pytest.skip(str(error))


def ask(*texts: str, max_tokens: int = 80, **more: Any) -> GenerationRequest:
    roles = ("user", "assistant")
    said = (ChatMessage(roles[i % 2], text) for i, text in enumerate(texts))  # type: ignore[arg-type]
    # The temperature of the shipped configuration, at which the small model ends its calls.
    sampling = SamplingOptions(temperature=0.2, max_tokens=max_tokens, seed=1)
    return GenerationRequest(tuple(said), sampling, **more)


async def answer(
    engine: LlamaCppEngine, request: GenerationRequest
) -> tuple[GenerationDelta, FinishReason | None, TokenUsage]:
    whole = GenerationDelta()
    async for delta in engine.generate(request):
        whole += delta
    assert delta.usage is not None
    return whole, delta.finish_reason, delta.usage


def json_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.slow
async def test_structured_output_obeys_its_schema(engine: LlamaCppEngine) -> None:
    async def check(name: str) -> None:
        request = ask("An example.", max_tokens=100, response_format=json_format(GOOD[name]))
        whole, finish, usage = await answer(engine, request)
        Draft202012Validator(GOOD[name]).validate(json.loads(whole.text))
        assert finish == "stop" and usage.completion_tokens <= 100

    names = ("optional", "numbers", "list of itself", "oneOf", "tuple", "names")
    await asyncio.gather(*map(check, names))


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"first_tool": "clock"},  # the grammar of the others is repeated, too
        pytest.param({"called_tool": "clock"}, marks=pytest.mark.slow),
    ],
)
async def test_required_tools_are_called_with_valid_arguments(
    engine: LlamaCppEngine, choice: dict[str, Any]
) -> None:
    request = ask("The weather in Rome?", tools=TOOLS, tool_choice="required", **choice)
    whole, finish, _ = await answer(engine, request)
    assert finish == "tool_calls" and not whole.text
    for call in whole.calls():
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "get_weather":
            Draft202012Validator(PLACE).validate(arguments)
        assert choice.get("called_tool") in (None, call["function"]["name"])
    first = whole.calls()[0]["function"]["name"]
    assert choice.get("first_tool", first) == first


@pytest.mark.parametrize(
    "text", ["The weather in Rome?", pytest.param("Name a city in JSON.", marks=pytest.mark.slow)]
)
async def test_an_answer_is_a_call_or_obeys_the_schema(engine: LlamaCppEngine, text: str) -> None:
    request = ask(text, max_tokens=60, tools=TOOLS, response_format=json_format(PLACE))
    whole, finish, _ = await answer(engine, request)
    assert (finish == "stop") == bool(whole.text) == (not whole.calls())
    if whole.text:
        Draft202012Validator(PLACE).validate(json.loads(whole.text))


async def test_auto_gives_text_or_calls_and_reads_tool_results(engine: LlamaCppEngine) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages = (
        ChatMessage("user", "What time is it?"),
        ChatMessage("assistant", "", {"tool_calls": [call]}),
        ChatMessage("tool", "It is noon", {"tool_call_id": "a"}),
    )
    request = GenerationRequest(messages, SamplingOptions(max_tokens=40, seed=1), tools=TOOLS)
    whole, _, usage = await answer(engine, request)
    assert whole.text or whole.calls()
    assert usage.prompt_tokens > 100  # the tools and the result are in it


@pytest.mark.slow
async def test_a_call_at_max_tokens_is_whole_and_ends_with_length(engine: LlamaCppEngine) -> None:
    story = record({"story": strings(minLength=20)}, "story")
    tools = ({"type": "function", "function": {"name": "tell", "parameters": story}},)
    sampling = SamplingOptions(max_tokens=70, seed=1, temperature=0)
    request = ask("Tell me a long story.")
    request = replace(request, sampling=sampling, tools=tools, tool_choice="required")
    whole, finish, usage = await answer(engine, request)
    Draft202012Validator(story).validate(json.loads(whole.calls()[0]["function"]["arguments"]))
    assert finish == "length" and usage.completion_tokens == 70


async def test_json_that_cannot_be_completed_within_max_tokens_finishes_with_length(
    engine: LlamaCppEngine,
) -> None:
    request = ask("An example.", max_tokens=5, response_format=json_format(record({"a": {}}, "a")))
    assert (await answer(engine, request))[1] == "length"


async def test_a_stop_sequence_does_not_break_structured_output(engine: LlamaCppEngine) -> None:
    request = GenerationRequest(
        (ChatMessage("user", "An example."),),
        SamplingOptions(max_tokens=200, stop=('"',)),
        response_format=json_format(record({"a": {"enum": ["x"]}}, "a")),
    )
    assert json.loads((await answer(engine, request))[0].text) == {"a": "x"}


async def test_an_unsupported_schema_is_refused_before_the_first_delta(
    engine: LlamaCppEngine,
) -> None:
    for name in BAD.keys() - TAKEN_BY_LLGUIDANCE:
        with pytest.raises(SchemaError):
            await anext(engine.generate(ask("Hi", response_format=json_format(BAD[name]))))


@pytest.mark.parametrize("seed", range(3))
async def test_a_schema_that_only_llguidance_supports_is_obeyed(
    engine: LlamaCppEngine, seed: int
) -> None:
    sampling = SamplingOptions(max_tokens=60, seed=seed, temperature=1.0)
    request = ask("Give me JSON.", response_format=json_format(PATTERNED))
    whole, finish, _ = await answer(engine, replace(request, sampling=sampling))
    assert finish in ("stop", "length")
    if finish == "stop":
        Draft202012Validator(PATTERNED).validate(json.loads(whole.text))


async def test_arguments_that_only_llguidance_constrains_obey_their_schema(
    engine: LlamaCppEngine,
) -> None:
    tool = {"type": "function", "function": {"name": "save", "parameters": PATTERNED}}
    request = ask("Save a as 14.", tools=(tool,), tool_choice="required", max_tokens=70)
    whole, finish, _ = await answer(engine, request)
    assert finish in ("tool_calls", "length")
    if finish == "tool_calls":
        for call in whole.tool_calls:
            arguments = json.loads(call["function"]["arguments"])
            Draft202012Validator(PATTERNED).validate(arguments)


async def test_a_continued_chat_reuses_the_prompt_cache(engine: LlamaCppEngine) -> None:
    said = ["Tell me about towns. " * 20, "They are old. " * 10, "And rivers?"]
    first, _, before = await answer(engine, ask(*said, owner="a", max_tokens=8))
    await answer(engine, ask("Something else", owner="a", max_tokens=2))
    _, _, after = await answer(engine, ask(*said, first.text, "Go on.", owner="a", max_tokens=2))
    assert after.cached_tokens >= before.prompt_tokens - 2
    assert after.prompt_tokens - after.cached_tokens < 40


async def test_what_is_read_ahead_is_cached_without_the_head_of_an_answer(
    engine: LlamaCppEngine,
) -> None:
    begun = ask("I would like to know more about", owner="h", max_tokens=1)
    whole = ask("I would like to know more about towns.", owner="h", max_tokens=1)
    _, _, read = await answer(engine, replace(begun, reads_only=True))
    _, _, asked = await answer(engine, replace(begun, owner="i"))
    _, _, after = await answer(engine, whole)
    assert read.completion_tokens <= 1 and read.prompt_tokens < asked.prompt_tokens
    assert after.cached_tokens >= read.prompt_tokens - 2


@pytest.mark.slow
async def test_a_tool_call_in_the_history_reuses_the_prompt_cache(engine: LlamaCppEngine) -> None:
    more: dict[str, Any] = {"tools": TOOLS, "owner": "g"}
    request = ask("The time?", tool_choice="required", called_tool="clock", **more)
    whole, _, before = await answer(engine, request)
    results = (ChatMessage("tool", "sunny", {"tool_call_id": call["id"]}) for call in whole.calls())
    messages = (*request.messages, whole.to_message(), *results)
    _, _, after = await answer(
        engine, GenerationRequest(messages, SamplingOptions(max_tokens=2), **more)
    )
    # The end of a call may be tokenised otherwise in a prompt than it was generated.
    assert after.cached_tokens > before.prompt_tokens


async def test_messages_that_llama_cpp_cannot_read_are_refused(engine: LlamaCppEngine) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "clock", "arguments": '{"a": "b'}}
    messages = (
        ChatMessage("user", "What time is it?"),
        ChatMessage("assistant", "", {"tool_calls": [call]}),
    )
    with pytest.raises(InvalidEngineRequest, match="the model refuses the messages"):
        await answer(engine, GenerationRequest(messages, SamplingOptions(max_tokens=5)))
    assert (await answer(engine, ask("Hi.", max_tokens=3)))[2].completion_tokens
