"""The engine with random weights: the course of its answers, and not what they say."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

from configs.chat_schema import TransformersChatConfig
from configs.load import load_yaml
from models.errors import (
    EngineError,
    EngineLost,
    InvalidEngineRequest,
    UnsupportedFeature,
    WeightsMissing,
)
from models.llm.base import ChatMessage, GenerationDelta, GenerationRequest
from models.llm.base import SamplingOptions as Sampling
from models.weights.store import WeightStore
from tests.models.one_folder import OneFolder

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)
pytest.importorskip("llguidance", reason=LIBRARIES)

from models.llm.transformers_batch import Step  # noqa: E402 it imports the libraries
from models.llm.transformers_engine import TransformersEngine  # noqa: E402
from models.llm.transformers_pages import marked  # noqa: E402
from tests.models.llm.test_chat_contract import (  # noqa: E402, F401 they run over this engine
    test_a_prompt_beyond_the_context_fails_before_the_first_piece,
    test_an_early_close_is_clean_and_the_engine_goes_on,
    test_answers_at_the_same_time_do_not_mix,
    test_max_tokens_ends_with_length,
    test_the_last_delta_has_the_finish_and_the_usage,
    test_usage_grows_with_the_text,
)
from tests.models.llm.tiny_chat import CONTEXT, make_tiny_chat, tiny_chat_config  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "parts": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["colour", "count", "parts"],
    "additionalProperties": False,
}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": "d", "parameters": SCHEMA}}
    for name in ("paint", "wash")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat")
    make_tiny_chat(path)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[TransformersEngine]:
    made = TransformersEngine(tiny_chat_config(), OneFolder(folder))
    yield made
    made.close()


def ask(text: str = "Hello", **sampling: Any) -> GenerationRequest:
    return GenerationRequest((ChatMessage("user", text),), Sampling(**sampling))


async def deltas_of(
    engine: TransformersEngine, request: GenerationRequest
) -> list[GenerationDelta]:
    return [delta async for delta in engine.generate(request)]


async def text_of(engine: TransformersEngine, request: GenerationRequest) -> str:
    return "".join(delta.text for delta in await deltas_of(engine, request))


async def test_the_likeliest_tokens_are_those_of_the_library(engine: TransformersEngine) -> None:
    request = ask("What is it?", temperature=0.0, max_tokens=24)
    prompt = engine._writer.write(request).tokens
    alone = engine._batch._model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=24, eos_token_id=1
    )[0, len(prompt) :].tolist()
    expected = engine._writer.decode([token for token in alone if token != 1])
    assert await text_of(engine, request) == expected


async def test_the_family_of_the_shipped_model_is_batched_too(tmp_path: Path) -> None:
    model = make_tiny_chat(tmp_path, "smollm3")
    assert load_yaml(TransformersChatConfig, "llm/smollm3").weights.startswith("smollm3")
    made = TransformersEngine(tiny_chat_config(), OneFolder(tmp_path))
    request = ask("What is it?", temperature=0.0, max_tokens=12)
    prompt = made._writer.write(request).tokens
    alone = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=12, eos_token_id=1
    )[0, len(prompt) :].tolist()
    expected = made._writer.decode([token for token in alone if token != 1])
    assert await text_of(made, request) == expected
    made.close()


async def test_the_same_seed_gives_the_same_answer_whatever_runs_beside_it(
    engine: TransformersEngine,
) -> None:
    request = ask("Name an animal.", seed=7, temperature=1.2, top_k=0, top_p=1.0, max_tokens=20)
    alone = await text_of(engine, request)
    others = [text_of(engine, ask("Tell more.", temperature=1.0, max_tokens=9)) for _ in range(3)]
    again, *_ = await asyncio.gather(text_of(engine, request), *others)
    assert again == alone
    seeded = replace(request, sampling=replace(request.sampling, seed=8))
    assert await text_of(engine, seeded) != alone


async def test_what_is_said_too_often_becomes_unlikely(engine: TransformersEngine) -> None:
    plain = ask("Again", temperature=0.0, max_tokens=40)
    varied = ask("Again", temperature=0.0, max_tokens=40, presence_penalty=2.0, frequency_penalty=2)
    once = await text_of(engine, plain)
    assert len(set(await text_of(engine, varied))) >= len(set(once))
    assert await text_of(engine, plain) == once  # the rows of the batch are clean again


async def test_the_stop_text_ends_the_answer_and_is_not_in_it(engine: TransformersEngine) -> None:
    request = ask("Go", temperature=0.0, max_tokens=40)
    said = await text_of(engine, request)
    stop = said[5:8]
    stopped = await deltas_of(
        engine, replace(request, sampling=replace(request.sampling, stop=(stop,)))
    )
    assert "".join(delta.text for delta in stopped) == said[: said.find(stop)]
    assert stopped[-1].finish_reason == "stop"
    assert stopped[-1].usage is not None and stopped[-1].usage.completion_tokens < 40


@pytest.mark.parametrize("seed", range(12))
async def test_an_answer_in_a_form_is_valid(engine: TransformersEngine, seed: int) -> None:
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
async def test_an_answer_in_a_form_ends_within_its_tokens(
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


async def test_an_answer_in_a_form_ends_with_its_context(engine: TransformersEngine) -> None:
    request = ask("x" * (CONTEXT - 130), temperature=1.5, top_k=0, seed=2)
    deltas = await deltas_of(engine, replace(request, response_format=held_to(LIST)))
    validate(json.loads("".join(delta.text for delta in deltas)), LIST)
    assert deltas[-1].finish_reason == "stop" and deltas[-1].usage is not None
    assert deltas[-1].usage.total_tokens <= CONTEXT


async def test_without_room_for_an_end_the_answer_is_cut_off(engine: TransformersEngine) -> None:
    request = replace(ask(max_tokens=9), response_format=held_to(LIST))
    deltas = await deltas_of(engine, request)
    assert "".join(delta.text for delta in deltas) == '{"text": '
    assert deltas[-1].finish_reason == "length"


async def test_a_schema_that_only_the_library_reads_is_held_to_and_cut_off(
    engine: TransformersEngine,
) -> None:
    named = {"type": "object", "patternProperties": {"^a+$": {"type": "boolean"}}}
    schema = {**named, "additionalProperties": False, "required": ["aaaaaaaaaaaaaaa"]}
    request = replace(ask(max_tokens=12), response_format=held_to(schema))
    deltas = await deltas_of(engine, request)
    assert "".join(delta.text for delta in deltas).startswith('{"aaaa')
    assert deltas[-1].finish_reason == "length"


async def test_a_stop_text_does_not_break_json(engine: TransformersEngine) -> None:
    request = replace(ask(stop=('"',)), response_format=held_to({"enum": ["abc"]}))
    assert await text_of(engine, request) == '"abc"'


async def test_a_call_that_meets_the_limit_is_whole_and_says_so(
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


async def test_a_later_call_without_room_is_left_out(engine: TransformersEngine) -> None:
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


async def test_thoughts_come_before_words_or_a_call_that_is_ended(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Script:
        """In place of a model, which would have to know how to think."""

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


async def test_any_object_may_be_the_form(engine: TransformersEngine) -> None:
    request = replace(ask(max_tokens=30, seed=1), response_format={"type": "json_object"})
    assert isinstance(json.loads(await text_of(engine, request)), dict)


@pytest.mark.parametrize("seed", range(6))
async def test_a_call_that_is_required_is_valid(engine: TransformersEngine, seed: int) -> None:
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


async def test_an_answer_is_a_call_or_json(engine: TransformersEngine) -> None:
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


async def test_tools_are_shown_and_need_not_be_called(engine: TransformersEngine) -> None:
    request = replace(ask(max_tokens=12, seed=3), tools=TOOLS)
    assert "paint" in engine._writer.decode(engine._writer.write(request).tokens)
    assert (await deltas_of(engine, request))[-1].finish_reason in ("stop", "length")
    silent = replace(request, tool_choice="none")
    assert "paint" not in engine._writer.decode(engine._writer.write(silent).tokens)


async def test_calls_of_earlier_turns_are_written_where_the_template_cannot(
    engine: TransformersEngine,
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = (ChatMessage("assistant", "", {"tool_calls": [call]}), ChatMessage("tool", "2"))
    prompt = engine._writer.decode(engine._writer.write(GenerationRequest(messages)).tokens)
    assert '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>' in prompt


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"pattern": "(?<=x)y", "type": "string"}}},
    ],
)
async def test_a_schema_that_cannot_be_kept_is_refused(
    engine: TransformersEngine, schema: dict[str, Any]
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with pytest.raises(UnsupportedFeature, match="schema"):
        await deltas_of(engine, replace(ask(max_tokens=4), response_format=form))


async def test_messages_that_the_template_refuses_are_the_callers_fault(
    engine: TransformersEngine,
) -> None:
    strange: Any = ChatMessage("forbidden", "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidEngineRequest, match="no such role"):
        await deltas_of(engine, GenerationRequest((strange,)))


async def test_thinking_is_asked_for_by_the_template(engine: TransformersEngine) -> None:
    request = ask()
    quiet = engine._writer.decode(engine._writer.write(request).tokens)
    loud = engine._writer.decode(
        engine._writer.write(replace(request, enable_thinking=True)).tokens
    )
    assert "</think>" in quiet and "</think>" not in loud


async def test_a_full_context_ends_with_length(engine: TransformersEngine) -> None:
    request = ask("x" * (CONTEXT - 100), temperature=1.0)
    deltas = await deltas_of(engine, request)
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.total_tokens <= CONTEXT


async def test_more_streams_than_the_batch_holds_all_end(engine: TransformersEngine) -> None:
    requests = [ask(str(n), max_tokens=4, seed=n) for n in range(20)]
    answers = await asyncio.gather(*(deltas_of(engine, request) for request in requests))
    assert all(deltas[-1].finish_reason for deltas in answers)


async def test_a_prompt_is_recognised_for_its_owner_alone(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = engine._batch._manager.batch_processor.cache
    found: list[int] = []
    search = cache.search_prefix_match

    def spied(request_id: str, prompt_ids: list[int]) -> int:
        found.append(search(request_id, prompt_ids))
        return found[-1]

    monkeypatch.setattr(cache, "search_prefix_match", spied)
    text = "The same long beginning of a chat, turn after turn."
    said = []
    for owner in ("a", "b", "a", ""):
        request = replace(ask(text, temperature=0.0, max_tokens=5), owner=owner)
        said.append(await text_of(engine, request))
    assert found[0] == found[1] == found[3] == 0 and found[2] >= 48
    assert len(set(said)) == 1  # also with pages that were not computed anew
    assert marked([1, 2], "a") != marked([1, 2], "b")


async def test_a_stream_that_is_left_makes_room(engine: TransformersEngine) -> None:
    async with aclosing(engine.generate(ask("Long", temperature=1.0))) as stream:
        await anext(stream)
    scheduler = engine._batch._manager.batch_processor.scheduler
    async for _ in until(lambda: not scheduler.active_requests):
        pass
    assert not engine._batch._router.streams


async def until(done: Any) -> AsyncIterator[None]:
    for _ in range(200):
        if done():
            return
        await asyncio.sleep(0.01)
        yield
    raise AssertionError("it did not come to that")


async def test_a_step_that_fails_ends_its_streams_and_the_next_ones_work(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = engine._batch._manager.batch_processor

    def fail(_model: Any) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as broken:
        broken.setattr(processor, "_generation_step", fail)
        with pytest.raises(EngineLost, match="out of memory"):
            await text_of(engine, ask())
    assert (await deltas_of(engine, ask(max_tokens=3)))[-1].usage is not None


async def test_a_closed_engine_says_so_and_leaves_no_weights(folder: Path) -> None:
    made = TransformersEngine(tiny_chat_config(), OneFolder(folder))
    network = weakref.ref(made._batch._model)
    running = made.generate(ask(temperature=1.0))
    await anext(running)
    await asyncio.to_thread(made.close)
    with pytest.raises(EngineLost):
        async for _ in running:
            pass
    with pytest.raises(EngineLost):
        await anext(made.generate(ask()))
    gc.collect()
    assert network() is None


async def test_four_bits_are_read_and_answer(folder: Path) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason=LIBRARIES)
    made = TransformersEngine(
        tiny_chat_config(quantization="nf4", dtype="bfloat16"), OneFolder(folder)
    )
    layers = [m for m in made._batch._model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit)]
    assert len(layers) == 2 * 7 and {layer.weight.quant_type for layer in layers} == {"nf4"}
    assert (await deltas_of(made, ask(max_tokens=3)))[-1].usage is not None
    made.close()


@pytest.mark.weights
async def test_one_file_of_real_weights_answers_and_calls(weights: WeightStore) -> None:
    pytest.importorskip("gguf", reason=LIBRARIES)
    try:
        source = weights.folder("smollm2-135m-q4")
    except WeightsMissing as error:
        pytest.skip(str(error))
    config = tiny_chat_config(gguf_file="model.gguf", context_tokens=768, cache_tokens=1024)
    made = TransformersEngine(config, OneFolder(source))
    question = ask("What is the capital of France?", temperature=0.0, max_tokens=12)
    assert "Paris" in await text_of(made, question)
    call = replace(ask("Paint it red.", temperature=0.0), tools=TOOLS, tool_choice="required")
    deltas = await deltas_of(made, replace(call, parallel_tool_calls=False))
    arguments = "".join(
        piece["function"]["arguments"] for delta in deltas for piece in delta.tool_calls
    )
    validate(json.loads(arguments), SCHEMA)
    made.close()


async def test_a_model_without_tools_refuses_them(folder: Path) -> None:
    made = TransformersEngine(tiny_chat_config(tools="none"), OneFolder(folder))
    with pytest.raises(UnsupportedFeature, match="tools"):
        await anext(made.generate(replace(ask(), tools=TOOLS)))
    made.close()


def test_what_cannot_be_loaded_says_why(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=str(CONTEXT)):
        TransformersEngine(
            tiny_chat_config(context_tokens=2 * CONTEXT, cache_tokens=4 * CONTEXT),
            OneFolder(folder),
        )
    with pytest.raises(EngineError, match="cannot be loaded"):
        TransformersEngine(tiny_chat_config(), OneFolder(tmp_path))
