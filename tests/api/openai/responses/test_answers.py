"""POST /openai/v1/responses, in process."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from api.http.bodies import MAX_VALUES
from models.llm.base import ChatMessage
from tests.api.money import Books
from tests.api.openai.responses.asking import (
    CALL,
    CITY,
    WEATHER,
    Headers,
    ThinkingEcho,
    events_of,
    refusal,
)


async def test_a_text_is_answered_with_its_usage_and_the_options_that_apply(
    respond: Callable[..., Any],
) -> None:
    body = (await respond(metadata={"topic": "seas"}, temperature=0.5)).json()
    (message,) = body.pop("output")
    assert message["content"] == [
        {"type": "output_text", "text": "hello big world", "annotations": [], "logprobs": []}
    ]
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert message["id"].startswith("msg_") and message["status"] == "completed"
    assert body.pop("id").startswith("resp_") and isinstance(body.pop("created_at"), int)
    assert body == {
        "object": "response",
        "status": "completed",
        "model": "svc/echo",
        "usage": {
            "input_tokens": 3,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 6,
        },
        "error": None,
        "incomplete_details": None,
        "background": False,
        "store": True,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {"topic": "seas"},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "temperature": 0.5,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,  # the model's own
        "truncation": "disabled",
    }


async def test_items_become_the_messages_of_a_chat(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    call = {"type": "function_call", "name": "weather", "arguments": "{}", "id": "fc_1"}
    result = {"type": "function_call_output", "status": "completed"}
    answer = await respond(
        [
            {"role": "user", "content": "Rome and Oslo?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
            },
            {**call, "call_id": "call_1"},
            {**call, "call_id": "call_2"},
            {**result, "call_id": "call_1", "output": "dry"},
            {**result, "call_id": "call_2", "output": [{"type": "input_text", "text": "wet"}]},
            {"role": "developer", "content": "Be brief."},
        ],
        instructions="Be kind.",
        tools=[{**WEATHER, "strict": True}],
    )
    assert answer.json()["output"][0]["content"][0]["text"] == "wet"
    function = {"name": "weather", "arguments": "{}"}
    calls = [{"id": f"call_{n}", "type": "function", "function": function} for n in (1, 2)]
    assert engine.asked[-1].messages == (
        ChatMessage("system", "Be kind."),
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Rome and Oslo?"),
        ChatMessage("assistant", "I look.", {"tool_calls": calls}),
        ChatMessage("tool", "dry", {"tool_call_id": "call_1"}),
        ChatMessage("tool", "wet", {"tool_call_id": "call_2"}),
    )
    assert engine.asked[-1].tools == (
        {"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True}},
    )
    assert engine.asked[-1].described_tools() == [
        {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    ]


async def test_a_tool_without_strict_is_shown_as_its_schema_allows(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    loose = {**CITY, "uniqueItems": True}
    wanted = [(CITY, None), (loose, None), (CITY, True), (CITY, False)]
    tools = [
        {"type": "function", "name": f"f{number}", "parameters": schema, "strict": strict}
        for number, (schema, strict) in enumerate(wanted)
    ]
    shown = (await respond(tools=tools)).json()["tools"]
    assert [tool["strict"] for tool in shown] == [True, False, True, False]
    functions = [tool["function"] for tool in engine.asked[-1].tools]
    assert [function.get("strict") for function in functions] == [None, None, True, False]


async def test_the_options_reach_the_model_as_those_of_a_chat_do(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    schema = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
    body = await respond(
        text={"format": schema},
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "weather"},
        parallel_tool_calls=False,
        max_output_tokens=2,
        top_p=0.5,
    )
    asked, shown = engine.asked[-1], body.json()
    named = {"name": "city", "schema": CITY, "strict": True}
    assert asked.response_format == {"type": "json_schema", "json_schema": named}
    assert (asked.tool_choice, asked.called_tool) == ("required", "weather")
    assert not asked.parallel_tool_calls
    assert (asked.sampling.max_tokens, asked.sampling.top_p) == (2, 0.5)
    assert asked.sampling.temperature == shown["temperature"] == 0.0
    assert shown["text"]["format"] == {**schema, "description": None}
    assert shown["tool_choice"] == {"type": "function", "name": "weather"}
    assert shown["tools"] == [{**WEATHER, "description": None, "strict": True}]
    assert (shown["status"], shown["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert shown["output"][0]["status"] == "incomplete"


async def test_a_stream_has_every_event_in_order(respond: Callable[..., Any]) -> None:
    events = events_of(await respond("hello world", stream=True))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    created, done = events[0]["response"], events[-1]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert done["id"] == created["id"] and done["usage"]["total_tokens"] == 4
    (item,) = done["output"]
    of_item = [event for event in events if "item_id" in event]
    assert {(event["item_id"], event["output_index"]) for event in of_item} == {(item["id"], 0)}
    deltas = [event["delta"] for event in events if event["type"].endswith("text.delta")]
    assert "".join(deltas) == events[6]["text"] == item["content"][0]["text"] == "hello world"
    assert events[2]["item"]["content"] == [] and events[8]["item"] == item


async def test_streamed_reasoning_text_and_calls_are_items_one_after_the_other(
    respond: Callable[..., Any],
) -> None:
    both = f"Look: {CALL}\n{CALL.replace('Oslo', 'Rome')}"
    fields = {"tools": [WEATHER], "reasoning": {"effort": "low"}}
    events = events_of(await respond(both, stream=True, **fields))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[2:6] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
    ]
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert output[0]["content"] == [{"type": "reasoning_text", "text": "Hm. "}]
    assert [json.loads(item["arguments"])["city"] for item in output[2:]] == ["Oslo", "Rome"]
    assert {item["name"] for item in output[2:]} == {"weather"}
    assert all(item["call_id"].startswith("call_") for item in output[2:])
    assert len({item["id"] for item in output}) == 4
    for index, item in enumerate(output):  # each ends before the next begins
        places = [at for at, event in enumerate(events) if event.get("output_index") == index]
        assert places == list(range(places[0], places[-1] + 1))
        assert events[places[-1]] == {**events[places[-1]], "item": item}
    for item in output[2:]:
        of_call = [event for event in events if event.get("item_id") == item["id"]]
        assert "".join(event.get("delta", "") for event in of_call) == item["arguments"]
        assert of_call[-1]["arguments"] == item["arguments"]
    whole = (await respond(both, **fields)).json()
    assert [item["type"] for item in whole["output"]] == [item["type"] for item in output]


async def test_a_failure_during_a_stream_is_its_last_event_and_costs_nothing(
    respond: Callable[..., Any], books: Books
) -> None:
    events = events_of(await respond("please break now", stream=True))
    assert events[-1]["type"] == "response.failed"
    failed = events[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert failed["output"][0]["status"] == "incomplete" and failed["usage"] is None
    assert await books.kinds() == ["hold", "release"]
    whole = await respond("please break now")
    assert whole.status_code == 503 and whole.json()["error"]["type"] == "server_error"


async def test_a_response_costs_what_the_same_chat_costs(
    client: httpx.AsyncClient, auth: Headers, respond: Callable[..., Any], books: Books
) -> None:
    await respond(instructions="Be kind.")
    once = await books.charged("chat")
    messages = [{"role": "system", "content": "Be kind."}]
    messages += [{"role": "user", "content": "hello big world"}]
    await client.post("/openai/v1/chat/completions", headers=auth, json={"messages": messages})
    assert await books.charged("chat") == (2 * once[0], 2 * once[1]) and once[0] == 8


async def test_a_request_with_an_idempotency_key_is_answered_once(
    respond: Callable[..., Any], auth: Headers, engine: ThinkingEcho
) -> None:
    headers = {**auth, "Idempotency-Key": "once"}
    first, again = [await respond(headers=headers) for _ in range(2)]
    assert first.json() == again.json() and len(engine.asked) == 1


WRONG: list[tuple[dict[str, Any], str]] = [
    *[
        ({"tools": [{"type": kind}]}, f"'{kind}' is not supported")
        for kind in ("web_search", "file_search", "code_interpreter", "image_generation")
        + ("mcp", "custom", "computer_use_preview", "local_shell")
    ],
    ({"tools": [{"type": "x" * 5000}]}, "x..."),
    ({"tools": [WEATHER, WEATHER]}, "names must be unique"),
    ({"tools": [{**WEATHER, "name": "a b"}]}, "tools.0.name"),
    ({"tool_choice": {"type": "web_search"}}, "'web_search' is not supported"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "'allowed_tools'"),
    ({"tool_choice": "required"}, "'required' needs at least one tool"),
    ({"tool_choice": {"type": "function", "name": "no"}}, "no tool has that name"),
    ({"text": {"format": {"type": "grammar"}}}, "text.format"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema: Field"),
    ({"background": True}, "background"),
    ({"prompt": 0}, "prompt"),
    ({"conversation": "conv_1"}, "previous_response_id"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"include": ["message.output_text.logprobs"]}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"truncation": "middle"}, "truncation"),
    ({"metadata": {"a": "b" * 513}}, "metadata"),
    ({"reasoning": {"effort": "all"}}, "reasoning.effort"),
    ({"stream": "yes"}, "stream"),
    ({"input": []}, "input"),
    ({"input": 7}, "input"),
    ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "items must be of type"),
    ({"input": [{"type": "item_reference"}]}, "input.0"),
    ({"input": [{"type": ["message"]}]}, "input.0"),
    ({"input": ["text"]}, "input.0"),
    ({"input": [{"type": "message", "role": "user"}]}, "input.0.content: Field required"),
    ({"input": [{"type": "function_call", "name": "x"}]}, "input.0.call_id: Field required"),
    ({"input": [{"type": "reasoning", "summary": []}]}, "nothing to answer"),
    ({"input": [{"role": "tool", "content": "a"}]}, "role"),
    ({"input": [{"role": "user", "content": None}]}, "content"),
    ({"input": [{"role": "user", "content": []}]}, "at least 1 part"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "'input_text'"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "call_id"),
    ({"input": [{"type": "function_call_output", "output": "a"}]}, "call_id"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "a"}]},
        "call_id",
    ),
]


async def test_what_is_wrong_or_not_supported_is_refused_by_name(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    for fields, said in WRONG:
        answer = await respond(fields.get("input", "hello"), **fields)
        status, message, _ = refusal(answer)
        assert status == 400 and said in message and len(message) < 1000, (fields, message)
    assert engine.asked == []


async def test_hostile_numbers_of_items_and_references_are_refused_or_answered(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    item = {"role": "user", "content": "a"}
    assert "larger than" in refusal(await respond([item] * 100_000))[1]
    assert refusal(await respond([item] * 20_000))[1].endswith(f"{MAX_VALUES} values")
    assert refusal(await respond([item] * 1001))[2] == "input"
    name = f"msg_{'0' * 48}"
    assert refusal(await respond([{"id": name}] * 1000))[0] == 404
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    assert (await respond([item, *[call] * 900, item])).status_code == 200
    nested = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    assert (await respond(tools=[{**WEATHER, "parameters": nested}])).status_code == 200
    odd = "\u2028 😀 </tool_call> data: [DONE]"
    events = events_of(await respond(odd, stream=True))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == odd


async def test_fields_without_effect_are_named_and_unknown_models_are_404(
    respond: Callable[..., Any],
) -> None:
    answer = await respond(user="u", service_tier="auto", prompt_cache_key="k", max_tool_calls=3)
    named = answer.headers["x-ignored-fields"]
    assert named == "user, service_tier, prompt_cache_key, max_tool_calls"
    unknown = await respond(model="gpt-9")
    assert unknown.status_code == 404 and "svc/echo" in unknown.json()["message"]
