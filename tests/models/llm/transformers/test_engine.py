"""The transformers chat engine with random weights: how it behaves, not what it answers."""

import asyncio
import gc
import json
import weakref
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate  # type: ignore[import-untyped]

from configs.load import load_yaml
from configs.schema.models.llm import TransformersChatConfig
from models.errors import (
    EngineError,
    EngineLost,
    InvalidEngineRequest,
    UnsupportedFeature,
    WeightsMissing,
)
from models.llm.base import ChatMessage, GenerationRequest
from models.weights.store import WeightStore
from tests.models.weights.one_folder import OneFolder
from tests.patience import until

LIBRARIES = "the libraries of the GPU profile are not installed; `make test-gpu` runs these tests"
pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason=LIBRARIES)
pytest.importorskip("transformers", reason=LIBRARIES)
pytest.importorskip("accelerate", reason=LIBRARIES)
pytest.importorskip("llguidance", reason=LIBRARIES)

from models.llm.base import SamplingOptions as Sampling  # noqa: E402
from models.llm.token_engine import TokenRequest  # noqa: E402
from models.llm.transformers.batch import salted  # noqa: E402
from models.llm.transformers.engine import TransformersEngine  # noqa: E402
from tests.models.llm.test_contract import (  # noqa: E402, F401 they run over this engine
    test_a_prompt_longer_than_the_context_is_refused_before_the_first_delta,
    test_an_answer_cut_by_max_tokens_finishes_with_length,
    test_closing_a_generation_early_keeps_the_engine_usable,
    test_concurrent_answers_do_not_mix,
    test_every_delta_has_a_usage_that_never_decreases,
    test_the_last_delta_has_the_finish_reason_and_the_usage,
)
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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chat")
    make_tiny_chat(path)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[TransformersEngine]:
    made = TransformersEngine(tiny_chat_config(), OneFolder(folder))
    yield made
    made.close()


async def test_greedy_decoding_matches_the_transformers_library(engine: TransformersEngine) -> None:
    request = ask("What is it?", temperature=0.0, max_tokens=24)
    prompt = engine._writer.write(request).tokens
    alone = engine._batch._model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=24, eos_token_id=1
    )[0, len(prompt) :].tolist()
    expected = engine._writer.decode([token for token in alone if token != 1])
    assert await text_of(engine, request) == expected


async def test_smollm3_decoding_matches_the_transformers_library(tmp_path: Path) -> None:
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


async def test_the_same_seed_gives_the_same_answer_in_any_batch(engine: TransformersEngine) -> None:
    request = ask("Name an animal.", seed=7, temperature=1.2, top_k=0, top_p=1.0, max_tokens=20)
    alone = await text_of(engine, request)
    others = [text_of(engine, ask("Tell more.", temperature=1.0, max_tokens=9)) for _ in range(3)]
    again, *_ = await asyncio.gather(text_of(engine, request), *others)
    assert again == alone
    seeded = replace(request, sampling=replace(request.sampling, seed=8))
    assert await text_of(engine, seeded) != alone


async def test_repetition_penalties_apply_to_their_request_only(engine: TransformersEngine) -> None:
    plain = ask("Again", temperature=0.0, max_tokens=40)
    varied = ask("Again", temperature=0.0, max_tokens=40, presence_penalty=2.0, frequency_penalty=2)
    once = await text_of(engine, plain)
    assert len(set(await text_of(engine, varied))) >= len(set(once))
    assert await text_of(engine, plain) == once  # penalties are not kept in the batch


async def test_a_stop_sequence_ends_the_answer_and_is_not_in_it(engine: TransformersEngine) -> None:
    request = ask("Go", temperature=0.0, max_tokens=40)
    said = await text_of(engine, request)
    stop = said[5:8]
    stopped = await deltas_of(
        engine, replace(request, sampling=replace(request.sampling, stop=(stop,)))
    )
    assert "".join(delta.text for delta in stopped) == said[: said.find(stop)]
    assert stopped[-1].finish_reason == "stop"
    assert stopped[-1].usage is not None and stopped[-1].usage.completion_tokens < 40


async def test_the_prompt_has_tools_unless_tool_choice_is_none(engine: TransformersEngine) -> None:
    request = replace(ask(max_tokens=12, seed=3), tools=TOOLS)
    assert "paint" in engine._writer.decode(engine._writer.write(request).tokens)
    assert (await deltas_of(engine, request))[-1].finish_reason in ("stop", "length")
    silent = replace(request, tool_choice="none")
    assert "paint" not in engine._writer.decode(engine._writer.write(silent).tokens)


async def test_earlier_tool_calls_are_in_the_prompt_without_support_of_the_template(
    engine: TransformersEngine,
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = (ChatMessage("assistant", "", {"tool_calls": [call]}), ChatMessage("tool", "2"))
    prompt = engine._writer.decode(engine._writer.write(GenerationRequest(messages)).tokens)
    assert '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>' in prompt


async def test_messages_that_the_chat_template_rejects_raise_invalid_engine_request(
    engine: TransformersEngine,
) -> None:
    strange: Any = ChatMessage("forbidden", "x")  # type: ignore[arg-type]
    with pytest.raises(InvalidEngineRequest, match="no such role"):
        await deltas_of(engine, GenerationRequest((strange,)))


async def test_enable_thinking_is_passed_to_the_chat_template(engine: TransformersEngine) -> None:
    request = ask()
    quiet = engine._writer.decode(engine._writer.write(request).tokens)
    loud = engine._writer.decode(
        engine._writer.write(replace(request, enable_thinking=True)).tokens
    )
    assert "</think>" in quiet and "</think>" not in loud


async def test_an_answer_ends_with_length_when_the_context_is_full(
    engine: TransformersEngine,
) -> None:
    schema = {"type": "string", "minLength": 1000}  # no answer can end before
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    request = replace(ask("x" * (CONTEXT - 100), temperature=1.0), response_format=form)
    deltas = await deltas_of(engine, request)
    assert deltas[-1].finish_reason == "length" and deltas[-1].usage is not None
    assert deltas[-1].usage.total_tokens == CONTEXT


async def test_more_requests_than_the_batch_capacity_all_finish(engine: TransformersEngine) -> None:
    requests = [ask(str(n), max_tokens=4, seed=n) for n in range(20)]
    answers = await asyncio.gather(*(deltas_of(engine, request) for request in requests))
    assert all(deltas[-1].finish_reason for deltas in answers)


async def test_the_prefix_cache_is_used_only_for_prompts_of_the_same_owner(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = engine._batch._manager.batch_processor.cache
    found: list[int] = []
    search = cache.search_prefix_match

    def spied(request_id: str, prompt_ids: list[int]) -> int:
        found.append(search(request_id=request_id, prompt_ids=prompt_ids))
        return found[-1]

    monkeypatch.setattr(cache, "search_prefix_match", spied)
    text = "The same long beginning of a chat, turn after turn."
    said = []
    for owner in ("a", "b", "a", ""):
        request = replace(ask(text, temperature=0.0, max_tokens=5), owner=owner)
        said.append(await text_of(engine, request))
    assert found[0] == found[1] == found[3] == 0 and found[2] >= 48
    assert len(set(said)) == 1  # also with cached pages
    assert salted([1, 2], "a") != salted([1, 2], "b")


async def test_closing_a_stream_removes_it_from_the_batch(engine: TransformersEngine) -> None:
    async with aclosing(engine.generate(ask("Long", temperature=1.0))) as stream:
        await anext(stream)
    scheduler = engine._batch._manager.batch_processor.scheduler
    await until(lambda: not scheduler.active_requests)
    assert not engine._batch._router.streams


async def test_a_failed_step_raises_engine_lost_and_later_requests_succeed(
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


async def test_tokens_before_an_error_are_delivered_first(
    engine: TransformersEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = engine._batch.submit(
        TokenRequest(
            prompt=engine._writer.write(ask()).tokens,
            most_tokens=8,
            sampling=Sampling(temperature=0.0, top_p=1.0),
            constraint=None,
            owner="",
            is_speculative=False,
        )
    )
    processor = engine._batch._manager.batch_processor
    step = processor._generation_step
    steps = 0

    def fail_later(model: Any) -> None:
        nonlocal steps
        steps += 1
        if steps > 3:
            raise RuntimeError("the step failed")
        step(model)

    with monkeypatch.context() as broken:
        broken.setattr(processor, "_generation_step", fail_later)
        await until(lambda: stream._ready.qsize() > 1 and steps > 3)
    await asyncio.sleep(0.1)  # the error comes from another thread
    assert len((await stream.take()).tokens) >= 2
    with pytest.raises(EngineLost, match="the step failed"):
        await stream.take()
    stream.close()


def test_the_model_names_its_device(engine: TransformersEngine) -> None:
    assert engine.capabilities.device == "cpu"


async def test_a_closed_engine_raises_and_frees_its_weights(folder: Path) -> None:
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


async def test_a_model_quantised_to_nf4_loads_and_answers(folder: Path) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason=LIBRARIES)
    made = TransformersEngine(
        tiny_chat_config(quantization="nf4", dtype="bfloat16"), OneFolder(folder)
    )
    layers = [m for m in made._batch._model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit)]
    assert len(layers) == 2 * 7 and {layer.weight.quant_type for layer in layers} == {"nf4"}
    assert (await deltas_of(made, ask(max_tokens=3)))[-1].usage is not None
    made.close()


@pytest.mark.weights
async def test_real_gguf_weights_answer_and_call_tools(weights: WeightStore) -> None:
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


async def test_a_model_without_tool_support_refuses_tools(folder: Path) -> None:
    made = TransformersEngine(tiny_chat_config(tools="none"), OneFolder(folder))
    with pytest.raises(UnsupportedFeature, match="tools"):
        await anext(made.generate(replace(ask(), tools=TOOLS)))
    made.close()


def test_an_engine_that_cannot_load_raises_the_reason(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=str(CONTEXT)):
        TransformersEngine(
            tiny_chat_config(context_tokens=2 * CONTEXT, cache_tokens=4 * CONTEXT),
            OneFolder(folder),
        )
    with pytest.raises(EngineError, match="cannot be loaded"):
        TransformersEngine(tiny_chat_config(), OneFolder(tmp_path))
