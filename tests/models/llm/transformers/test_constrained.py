"""Constrained decoding and tool calls of the engine with random weights."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

from models.llm.structured_output.ast import SchemaError
from tests.models.weights.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)
pytest.importorskip("llguidance", reason=LIBRARIES)

from models.llm.token_engine import Step  # noqa: E402 it imports the libraries
from models.llm.transformers.engine import TransformersEngine  # noqa: E402
from tests.models.llm.transformers.tiny_chat import (  # noqa: E402 it imports the libraries
    CONTEXT,
    SCHEMA,
    TOOLS,
    ask,
    deltas_of,
    make_tiny_chat,
    text_of,
    tiny_chat_config,
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersEngine]:
    path = tmp_path_factory.mktemp("chat")
    make_tiny_chat(path)
    made = TransformersEngine(tiny_chat_config(), OneFolder(path))
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(12))
async def test_structured_output_obeys_its_schema(engine: TransformersEngine, seed: int) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    request = replace(ask(seed=seed, temperature=1.5, top_k=0, top_p=1.0), response_format=form)
    deltas = await deltas_of(engine, request)
    assert deltas[-1].finish_reason == "stop"
    validate(json.loads("".join(delta.text for delta in deltas)), SCHEMA)


def held_to(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


LIST = {"$ref": "#/$defs/Node"} | {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
            "required": ["text", "next"],
        }
    }
}
TELL = (
    {"type": "function", "function": {"name": "tell", "parameters": {"type": "object", **LIST}}},
)


@pytest.mark.parametrize("most", [26, 27, 40])
async def test_structured_output_ends_within_max_tokens(
    engine: TransformersEngine, most: int
) -> None:
    request = replace(ask(temperature=1.5, top_k=0, max_tokens=most), response_format=held_to(LIST))
    seeded = [replace(request.sampling, seed=seed) for seed in range(8)]
    answers = await asyncio.gather(
        *(deltas_of(engine, replace(request, sampling=sampling)) for sampling in seeded)
    )
    for deltas in answers:
        validate(json.loads("".join(delta.text for delta in deltas)), LIST)
        assert deltas[-1].finish_reason == "stop" and deltas[-1].usage is not None
        assert deltas[-1].usage.completion_tokens <= most
    assert any(deltas[-1].usage.completion_tokens == most for deltas in answers if deltas[-1].usage)


async def test_structured_output_ends_within_the_context(engine: TransformersEngine) -> None:
    request = ask("x" * (CONTEXT - 130), temperature=1.5, top_k=0, seed=2)
    deltas = await deltas_of(engine, replace(request, response_format=held_to(LIST)))
    validate(json.loads("".join(delta.text for delta in deltas)), LIST)
    assert deltas[-1].finish_reason == "stop" and deltas[-1].usage is not None
    assert deltas[-1].usage.total_tokens <= CONTEXT


async def test_incomplete_structured_output_ends_with_length(engine: TransformersEngine) -> None:
    request = replace(ask(max_tokens=9), response_format=held_to(LIST))
    deltas = await deltas_of(engine, request)
    assert "".join(delta.text for delta in deltas) == '{"text": '
    assert deltas[-1].finish_reason == "length"


async def test_schemas_of_llguidance_are_obeyed_until_max_tokens(
    engine: TransformersEngine,
) -> None:
    named = {"type": "object", "patternProperties": {"^a+$": {"type": "boolean"}}}
    schema = {**named, "additionalProperties": False, "required": ["aaaaaaaaaaaaaaa"]}
    request = replace(ask(max_tokens=12), response_format=held_to(schema))
    deltas = await deltas_of(engine, request)
    assert "".join(delta.text for delta in deltas).startswith('{"aaaa')
    assert deltas[-1].finish_reason == "length"


async def test_a_stop_sequence_does_not_break_structured_output(engine: TransformersEngine) -> None:
    request = replace(ask(stop=('"',)), response_format=held_to({"enum": ["abc"]}))
    assert await text_of(engine, request) == '"abc"'


async def test_a_call_at_max_tokens_is_whole_and_ends_with_length(
    engine: TransformersEngine,
) -> None:
    for seed in range(4):
        request = ask(temperature=1.5, top_k=0, max_tokens=100, seed=seed)
        request = replace(request, tools=TELL, tool_choice="required")
        deltas = await deltas_of(engine, request)
        pieces = [call["function"]["arguments"] for delta in deltas for call in delta.tool_calls]
        validate(json.loads("".join(pieces)), LIST)
        assert deltas[-1].usage is not None
        spent = deltas[-1].usage.completion_tokens == 100
        assert deltas[-1].finish_reason == ("length" if spent else "tool_calls")


async def test_a_second_call_beyond_the_token_limit_is_dropped(engine: TransformersEngine) -> None:
    tools = tuple(
        {"type": "function", "function": {"name": name}} for name in ("one", "two", "three")
    )
    request = ask(temperature=1.0, max_tokens=80)
    for seed in range(4):
        sampling = replace(request.sampling, seed=seed)
        asked = replace(request, sampling=sampling, tools=tools, tool_choice="required")
        deltas = await deltas_of(engine, asked)
        firsts = [call for delta in deltas for call in delta.tool_calls if "id" in call]
        assert len(firsts) == 1 and deltas[-1].finish_reason == "tool_calls"


async def test_reasoning_precedes_text_or_a_tool_call_completed_at_the_token_limit(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Script:
        """Fixed tokens in place of a model, which would have to be trained to reason."""

        def __init__(self, tokens: list[int], *_: Any) -> None:
            self._left = tokens

        async def take(self) -> Step:
            return Step((self._left.pop(0),), ended=not self._left)

        def close(self) -> None:
            pass

    async def said(text: str, room: int) -> tuple[str, str, str, str | None]:
        tokens = engine._writer.tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens += engine._writer.tokenizer("n" * room)["input_ids"]
        monkeypatch.setattr(engine._batch, "submit", lambda *_: Script(tokens))
        asked = ask(max_tokens=len(tokens))
        deltas = await deltas_of(engine, replace(asked, tools=TELL, enable_thinking=True))
        calls = [call["function"]["arguments"] for delta in deltas for call in delta.tool_calls]
        reasoning = "".join(delta.reasoning for delta in deltas)
        text = "".join(delta.text for delta in deltas)
        return reasoning, text, "".join(calls), deltas[-1].finish_reason

    thoughts = "<think>\nA <b> or <tool.\n</think>\n\n"
    assert await said(thoughts + "No.", 0) == ("A <b> or <tool.", "No.", "", "length")
    assert (await said(thoughts[:10], 0))[:2] == (thoughts[8:10], "")
    begun = '<tool_call>\n{"name": "tell", "arguments": {"text": "'
    thought, text, arguments, finish = await said(thoughts + begun, 90)
    assert (thought, text, finish) == ("A <b> or <tool.", "", "length")
    validate(json.loads(arguments), LIST)
    assert "nnn" in arguments
    assert await said(thoughts + begun, 0) == ("A <b> or <tool.", "", "", "length")


async def test_the_json_object_format_returns_an_object(engine: TransformersEngine) -> None:
    request = replace(ask(max_tokens=30, seed=1), response_format={"type": "json_object"})
    assert isinstance(json.loads(await text_of(engine, request)), dict)


@pytest.mark.parametrize("seed", range(6))
async def test_a_required_call_has_valid_arguments(engine: TransformersEngine, seed: int) -> None:
    request = replace(
        ask(seed=seed, temperature=1.5, top_k=0, top_p=1.0),
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=seed % 2 == 0,
        called_tool="wash" if seed > 2 else None,
    )
    deltas = await deltas_of(engine, request)
    assert deltas[-1].finish_reason == "tool_calls"
    assert not "".join(delta.text for delta in deltas).strip()
    pieces = [call for delta in deltas for call in delta.tool_calls]
    firsts = [piece for piece in pieces if "id" in piece]
    assert [first["index"] for first in firsts] == list(range(len(firsts)))
    assert request.parallel_tool_calls or len(firsts) == 1
    for first in firsts:
        arguments = "".join(
            piece["function"]["arguments"] for piece in pieces if piece["index"] == first["index"]
        )
        validate(json.loads(arguments), SCHEMA)
        assert first["function"]["name"] == "wash" or seed <= 2


async def test_an_answer_is_a_call_or_obeys_the_schema(engine: TransformersEngine) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    chosen = set()
    for seed in range(8):
        request = ask(max_tokens=400, seed=seed, temperature=1.5, top_k=0, top_p=1.0)
        request = replace(request, tools=TOOLS, response_format=form, parallel_tool_calls=False)
        deltas = await deltas_of(engine, request)
        text = "".join(delta.text for delta in deltas)
        if text:
            validate(json.loads(text), SCHEMA)
        chosen.add((bool(text), deltas[-1].finish_reason))
    assert chosen == {(True, "stop"), (False, "tool_calls")}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"pattern": "(?<=x)y", "type": "string"}}},
    ],
)
async def test_an_unsupported_schema_is_refused(
    engine: TransformersEngine, schema: dict[str, Any]
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with pytest.raises(SchemaError, match="schema"):
        await deltas_of(engine, replace(ask(max_tokens=4), response_format=form))
