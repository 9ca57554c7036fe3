"""Tool calls and response formats over HTTP, with an engine that needs no weights."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from openai.lib.streaming.chat import ContentDeltaEvent

from api.native.chat.schemas import ChatCompletionBody
from models.base import ModelInfo
from models.weights.store import WeightStore
from tests.api.chat_server import ChatServer, serve_chat
from tests.engines.echo import EchoConfig, EchoEngine
from tests.patience import PATIENCE_S

INFO = ModelInfo("svc/echo", "chat", "echo", "us", 0, ("en",), ("svc/slm-3b-int4",))
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    config = EchoConfig(engine="echo", id=INFO.id, owned_by="us", created=0, languages=("en",))
    engine = EchoEngine(config, WeightStore(Path("unused")))
    with serve_chat(tmp_path_factory.mktemp("tools"), engine, INFO) as running:
        yield running


def call(city: str) -> str:
    """A tool call as models write it, which the engine echoes."""
    arguments = json.dumps({"city": city})
    return f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'


def say(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "tool": [WEATHER], **fields}


def post(server: ChatServer, body: Any) -> httpx.Response:
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=body, headers=server.headers, timeout=PATIENCE_S)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 0.0),
        ({"response_format": {"type": "json_object"}}, 0.0),
        ({"chat_template_kwargs": {"enable_thinking": True}}, 0.2),
        ({"reasoning_effort": "low"}, 0.2),
        ({"reasoning_effort": "none"}, 0),
        ({"reasoning_effort": "default"}, 0),
        ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, 0),
        ({"temperature": 1}, 1.0),
        ({"tool_choice": "none"}, None),
        ({"tool": []}, None),
        ({"tool": [], "response_format": {"type": "json_object"}}, 0.2),
        ({"tool": [], "response_format": {"type": "text"}}, None),
    ],
)
def test_the_default_temperature_is_lower_for_constrained_decoding(
    fields: dict[str, Any], expected: float | None
) -> None:
    body = ChatCompletionBody.model_validate(say("hello", **fields))
    assert body.sampling().temperature == expected


@pytest.mark.parametrize("schema", [None, {}, WEATHER["parameters"]])
def test_a_json_object_obeys_the_schema_beside_its_type(schema: Any) -> None:
    form = {"type": "json_object", "schema": schema}
    body = ChatCompletionBody.model_validate(say("hello", response_format=form))
    named = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert body.format() == (named if schema else {"type": "json_object"})


def test_an_unstreamed_tool_call_has_the_openai_shape(server: ChatServer) -> None:
    body = post(server, say(call("Rome"), stream=False)).json()
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    (called,) = message["tool_calls"]
    assert message["content"] is None and called["type"] == "function"
    assert called["id"].startswith("call_")
    assert called["function"] == {"name": "get_weather", "arguments": '{"city": "Rome"}'}
    assert body["usage"]["completion_tokens"] > 0


def test_text_before_a_tool_call_stays_in_the_content(server: ChatServer) -> None:
    body = post(server, say("let me look " + call("Rome"), stream=False)).json()
    message = body["choices"][0]["message"]
    assert message["content"] == "let me look " and len(message["tool_calls"]) == 1


def test_streamed_tool_calls_start_with_the_name_and_join_to_arguments(server: ChatServer) -> None:
    response = post(server, say(call("Rome") + "\n" + call("Oslo")))
    lines = [line for line in response.text.split("\n\n") if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert lines[-1] == "data: [DONE]"
    assert all(isinstance(e["choices"][0]["delta"]["content"], str) for e in events)
    pieces = [p for e in events for p in e["choices"][0]["delta"].get("tool_calls", ())]
    for index, city in enumerate(("Rome", "Oslo")):
        first, *rest = [piece for piece in pieces if piece["index"] == index]
        assert first["type"] == "function" and first["id"].startswith("call_")
        assert first["function"]["name"] == "get_weather"
        assert all(piece.keys() == {"index", "function"} for piece in rest)
        texts = [piece["function"]["arguments"] for piece in (first, *rest)]
        assert json.loads("".join(texts)) == {"city": city}
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert events[-1]["type"] == "done"


def test_openais_client_reads_streamed_and_unstreamed_tool_calls(server: ChatServer) -> None:
    client = OpenAI(base_url=f"{server.url}/openai/v1", api_key=server.token)
    fields: Any = {
        "model": "svc/slm-3b-int4",
        "messages": [{"role": "user", "content": call("Rome") + "\n" + call("Oslo")}],
        "tools": [{"type": "function", "function": WEATHER}],
        "tool_choice": "required",
        "parallel_tool_calls": True,
    }
    whole = client.chat.completions.create(**fields).choices[0]
    with client.chat.completions.stream(**fields) as stream:
        texts = [event.delta for event in stream if isinstance(event, ContentDeltaEvent)]
        streamed = stream.get_final_completion().choices[0]
    assert not any(text.strip() for text in texts)
    for choice in (whole, streamed):
        assert choice.finish_reason == "tool_calls"
        assert [c.function.arguments for c in choice.message.tool_calls or ()] == [
            '{"city": "Rome"}',
            '{"city": "Oslo"}',
        ]


def test_the_prompt_of_a_continued_chat_has_its_tool_calls_and_results(server: ChatServer) -> None:
    body = post(server, say(call("Rome"), stream=False)).json()
    (called,) = body["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": called["id"], "content": "sunny there"}
    fields = {"messages": [result], "chat_id": body["chat_id"], "stream": False}
    answer = post(server, {"tool": [WEATHER], **fields})
    assert answer.json()["choices"][0]["message"]["content"] == "sunny there"
    saved = httpx.get(f"{server.url}/chats/{body['chat_id']}", headers=server.headers).json()
    _, asking, answered, last = saved["messages"]
    assert asking["tool_calls"] == [called] and asking["content"] == ""
    assert answered["tool_call_id"] == called["id"] and answered["content"] == "sunny there"
    assert last["role"] == "assistant" and last["tool_calls"] is None
    # The prompt is the whole chat, with the tool call and its result.
    assert answer.json()["usage"]["prompt_tokens"] > body["usage"]["prompt_tokens"]


@pytest.mark.parametrize("chat", ["new", "saved"])
def test_a_tool_result_of_an_unknown_call_is_refused(server: ChatServer, chat: str) -> None:
    result = {"role": "tool", "tool_call_id": "call_unknown", "content": "x"}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}, result]}
    if chat == "saved":
        body["chat_id"] = post(server, say(call("Rome"), stream=False)).json()["chat_id"]
    response = post(server, body)
    assert response.status_code == 400 and response.json()["error"] == "validation_error"
    assert "tool_call_id" in response.json()["message"]


def test_tool_call_markup_is_text_when_no_tool_may_be_called(server: ChatServer) -> None:
    choices: list[dict[str, Any]] = [{"tool": []}, {"tool_choice": "none"}]
    for fields in choices:
        choice = post(server, say(call("Rome"), stream=False, **fields)).json()["choices"][0]
        assert choice["message"] == {"role": "assistant", "content": call("Rome")}
        assert choice["finish_reason"] == "stop"


def test_tool_calls_are_charged_by_their_tokens(server: ChatServer) -> None:
    def used() -> int:
        answer = httpx.get(f"{server.url}/billing/usage", headers=server.headers).json()
        return sum(int(item["units"]) for item in answer["usage"] if item["kind"] == "chat")

    before = used()
    usage = post(server, say(call("Rome"), stream=False)).json()["usage"]
    assert used() - before == usage["total_tokens"]
