"""What is sent to the other service, and what is read of its answers."""

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from configs.schema.models.llm import MORE_FIELDS, OPENAI_FIELDS
from models.errors import EngineOverloaded, UnsupportedFeature
from models.llm.base import ChatMessage, GenerationRequest, TokenUsage
from models.llm.base import SamplingOptions as Sampling
from models.weights.store import WeightStore
from tests.models.llm.upstream.raw_upstream import (
    DONE,
    HELLO,
    KEY,
    ROLE,
    ask,
    collect,
    engine_of,
    event,
    says,
    upstream,
    usage,
    whole,
)
from tests.patience import PATIENCE_S

FUNCTION = {"name": "weather", "parameters": {"type": "object"}, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


async def sent(weights: WeightStore, request: GenerationRequest, **options: Any) -> dict[str, Any]:
    async with upstream(says(*HELLO, DONE)) as served:
        await collect(engine_of(served.url, weights, **options), request)
        body: dict[str, Any] = served.bodies[0]
        return body


async def test_a_request_has_the_fields_of_openai_and_no_others(weights: WeightStore) -> None:
    sampling = Sampling(0.3, 0.9, 40, 0.1, 50, ("END",), 7, 0.5, -0.5)
    request = GenerationRequest(
        (ChatMessage("system", "Be short."), ChatMessage("user", "hi")),
        sampling,
        tools=(TOOL,),
        tool_choice="required",
        called_tool="weather",
        parallel_tool_calls=False,
        response_format=FORM,
        owner="7",
    )
    assert await sent(weights, request) == {
        "model": "far-1",
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.3,
        "top_p": 0.9,
        "max_tokens": 50,
        "stop": ["END"],
        "seed": 7,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "response_format": FORM,
    }


async def test_only_the_listed_fields_are_sent(weights: WeightStore) -> None:
    fields = ["max_completion_tokens", "top_k", "chat_template_kwargs"]
    request = ask(sampling=Sampling(max_tokens=5), enable_thinking=True, owner="7")
    body = await sent(weights, request, fields=fields)
    assert body.keys() == {"model", "messages", "stream", *fields}
    assert body["max_completion_tokens"] == 5 and body["top_k"] == 20
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    salts = [
        (await sent(weights, ask(owner=owner), fields=["cache_salt"]))["cache_salt"]
        for owner in ("7", "7", "8")
    ]
    assert salts[0] == salts[1] != salts[2]


async def test_a_history_with_calls_and_results_is_sent_whole(weights: WeightStore) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = (
        ChatMessage("user", "hi"),
        ChatMessage("assistant", "", {"tool_calls": [call]}),
        ChatMessage("tool", "sunny", {"tool_call_id": "c"}),
    )
    body = await sent(weights, GenerationRequest(messages, tools=(TOOL,)))
    assert body["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": "c"},
    ]
    assert body["tool_choice"] == "auto" and "parallel_tool_calls" not in body


async def test_max_tokens_never_exceeds_the_room_beside_the_prompt(weights: WeightStore) -> None:
    body = await sent(weights, ask("word " * 300, sampling=Sampling(max_tokens=1000)))
    assert 0 < body["max_tokens"] < 1000 - 300
    assert "max_tokens" not in await sent(weights, ask())


async def test_the_key_comes_from_its_variable_and_is_sent_as_a_bearer(
    weights: WeightStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream(says(*HELLO, DONE)) as served:
        await collect(engine_of(served.url, weights, key_env="FAR_KEY"), ask())
        await collect(engine_of(served.url, weights), ask())
    assert f"authorization: bearer {KEY}" in served.heads[0].lower()
    assert "authorization" not in served.heads[1].lower()
    monkeypatch.delenv("FAR_KEY")
    with pytest.raises(UnsupportedFeature, match="svc/far needs its key in the variable FAR_KEY"):
        engine_of("http://far", weights, key_env="FAR_KEY")


async def test_a_configuration_may_name_known_fields_only(weights: WeightStore) -> None:
    await sent(weights, ask(), fields=[*OPENAI_FIELDS, *MORE_FIELDS])
    with pytest.raises(ValidationError, match=r"unknown: \['best_of'\]; beside"):
        engine_of("http://far", weights, fields=["stop", "best_of"])


@pytest.mark.parametrize(
    "url", ["ftp://far/v1", "far/v1", "http://me:secret@far/v1", "http://far/v1?key=a", "http://"]
)
def test_an_address_of_another_scheme_or_with_a_secret_is_refused(
    weights: WeightStore, url: str
) -> None:
    with pytest.raises(ValidationError, match="url"):
        engine_of(url, weights)


@pytest.mark.parametrize(
    ("field", "request_"),
    [("tools", ask(tools=(TOOL,))), ("response_format", ask(response_format=FORM))],
)
async def test_what_the_model_is_declared_to_lack_is_refused(
    weights: WeightStore, field: str, request_: GenerationRequest
) -> None:
    engine = engine_of("http://far", weights, fields=["temperature"])
    assert not engine.capabilities.tools
    with pytest.raises(UnsupportedFeature, match=field.partition("_")[0]):
        await collect(engine, request_)


async def test_a_draft_is_begun_only_where_the_operator_pays_for_it(weights: WeightStore) -> None:
    async with upstream(says(*HELLO, DONE)) as served:
        with pytest.raises(EngineOverloaded):
            await collect(engine_of(served.url, weights), ask(is_speculative=True))
        assert not served.bodies
        answer = await whole(engine_of(served.url, weights, drafts=True), ask(is_speculative=True))
        assert answer.text == "Hello"


async def test_the_answer_has_the_usage_of_the_other_service(weights: WeightStore) -> None:
    counted = usage(12, 345, prompt_tokens_details={"cached_tokens": 8})
    async with upstream(says(*HELLO, counted, DONE)) as served:
        deltas = await collect(engine_of(served.url, weights), ask())
    assert [delta.text for delta in deltas] == ["Hel", "lo", ""]
    last = deltas[-1].usage
    assert last == TokenUsage(12, 345) and last is not None and last.cached_tokens == 8
    assert deltas[0].usage is not None and deltas[0].usage.completion_tokens == 1


async def test_without_a_usage_the_tokens_are_estimated(weights: WeightStore) -> None:
    long = event({"content": "word " * 60})
    async with upstream(says(ROLE, long, event(finish="length"), DONE)) as served:
        answer = await whole(engine_of(served.url, weights), ask("word " * 30))
    assert answer.finish_reason == "length"
    assert answer.usage == TokenUsage(59, 100)


async def test_a_usage_beyond_the_context_is_not_charged(weights: WeightStore) -> None:
    async with upstream(says(*HELLO, usage(10**12, 10**12), DONE)) as served:
        answer = await whole(engine_of(served.url, weights), ask())
    assert answer.usage == TokenUsage(1000, 1000)


@pytest.mark.parametrize(
    "thoughts",
    [
        [{"reasoning_content": "Hm."}, {"content": "Yes"}],
        [{"reasoning": "Hm."}, {"content": "Yes"}],
        [{"content": "<thi"}, {"content": "nk>Hm.</think>\n\nYes"}],
    ],
)
async def test_reasoning_is_separated_from_the_answer(
    weights: WeightStore, thoughts: list[dict[str, str]]
) -> None:
    async with upstream(says(*map(event, thoughts), event(finish="stop"), DONE)) as served:
        answer = await whole(engine_of(served.url, weights), ask())
    assert (answer.reasoning, answer.text) == ("Hm.", "Yes")


def called(index: int | None, id_: str | None, name: str | None, arguments: str) -> bytes:
    function = {"name": name, "arguments": arguments}
    return event({"tool_calls": [{"index": index, "id": id_, "function": function}]})


@pytest.mark.parametrize(
    "events",
    [
        # OpenAI, vLLM; calls that all have the index 0, as of Ollama; pieces that repeat the id.
        [called(0, "a", "f", ""), called(0, None, None, "{}"), called(1, "b", "g", "[]")],
        [called(0, "a", "f", "{}"), called(0, "b", "g", "[]")],
        [called(None, "a", "f", "{"), called(None, "a", "f", "}"), called(None, "b", "g", "[]")],
    ],
)
async def test_calls_of_tools_have_the_form_of_openai(
    weights: WeightStore, events: list[bytes]
) -> None:
    async with upstream(says(*events, event(finish="stop"), DONE)) as served:
        answer = await whole(engine_of(served.url, weights), ask(tools=(TOOL,)))
    assert answer.finish_reason == "tool_calls"
    assert [
        (c["id"], c["function"]["name"], c["function"]["arguments"]) for c in answer.calls()
    ] == [("a", "f", "{}"), ("b", "g", "[]")]


async def test_a_call_without_an_id_gets_one(weights: WeightStore) -> None:
    events = [called(0, None, "f", ""), called(0, None, None, "{}")]
    async with upstream(says(*events, event(finish="tool_calls"), DONE)) as served:
        [call] = (await whole(engine_of(served.url, weights), ask(tools=(TOOL,)))).calls()
    assert call["id"].startswith("call_") and call["function"] == {"name": "f", "arguments": "{}"}


async def test_events_may_be_cut_anywhere_and_have_comments_between(weights: WeightStore) -> None:
    text = (
        b": alive\r\n\r\n" + b"".join(HELLO).replace(b"\n", b"\r\n") + b"event: x\nid: 3\n" + DONE
    )
    async with upstream(says(*(text[at : at + 7] for at in range(0, len(text), 7)))) as served:
        assert (await whole(engine_of(served.url, weights), ask())).text == "Hello"


async def test_closing_an_answer_closes_the_request_to_the_other_service(
    weights: WeightStore,
) -> None:
    async with upstream(says(*HELLO[:2], stays=True)) as served:
        answer = engine_of(served.url, weights).generate(ask())
        assert (await anext(answer)).text == "Hel"
        await answer.aclose()
        await asyncio.wait_for(served.left.wait(), PATIENCE_S)


async def test_cancelling_before_the_first_token_closes_the_request_too(
    weights: WeightStore,
) -> None:
    async with upstream(says(stays=True)) as served:
        asking = asyncio.create_task(collect(engine_of(served.url, weights), ask()))
        while not served.bodies:
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait_for(served.left.wait(), PATIENCE_S)


async def test_answers_of_several_requests_come_at_once_and_do_not_mix(
    weights: WeightStore,
) -> None:
    def of(word: str) -> Any:
        return says(event({"content": word}), event(finish="stop"), DONE)

    words = [str(number) for number in range(40)]
    async with upstream(*map(of, words)) as served:
        engine = engine_of(served.url, weights)
        answers = await asyncio.gather(*(whole(engine, ask()) for _ in words))
    assert sorted(answer.text for answer in answers) == sorted(words)
