"""Chat over HTTP, on a real socket, with an engine that needs no weights."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from models.base import ModelInfo
from models.weights.store import WeightStore
from tests.api.chat_server import ChatServer, serve_chat
from tests.engines.echo import EchoConfig, EchoEngine
from tests.patience import PATIENCE_S

INFO = ModelInfo(
    "svc/echo", "chat", "echo", "us", 0, ("en",), ("svc/slm-3b-int4",), context_tokens=64
)
PATH = "/v1/chat/completions"


def make_engine(pause_s: float = 0.0) -> EchoEngine:
    config = EchoConfig(
        engine="echo", id=INFO.id, owned_by="us", created=0, languages=("en",),
        context_tokens=64, pause_s=pause_s,
    )  # fmt: skip
    return EchoEngine(config, WeightStore(Path("unused")))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    with serve_chat(tmp_path_factory.mktemp("chat"), make_engine(), INFO) as running:
        yield running


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatServer]:
    """Takes half a second for each word."""
    with serve_chat(tmp_path_factory.mktemp("slow"), make_engine(0.5), INFO) as running:
        yield running


def say(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def post(server: ChatServer, body: Any, path: str = PATH, **headers: str) -> httpx.Response:
    headers = {**server.headers, **headers}
    return httpx.post(server.url + path, json=body, headers=headers, timeout=PATIENCE_S)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The parsed server-sent events, without comments; checks that [DONE] is the last."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    blocks = response.text.split("\n\n")
    assert blocks[-1] == "" and blocks[-2] == "data: [DONE]"
    sent = [block for block in blocks[:-2] if not block.startswith(":")]
    return [json.loads(block.removeprefix("data: ")) for block in sent]


def test_a_stream_sends_chat_id_content_finish_and_done_events_in_order(server: ChatServer) -> None:
    first, *pieces, finish, done = events(post(server, say("hello big world")))
    assert first["type"] == "chat_id" and UUID(first["chat_id"])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    texts = [piece["choices"][0]["delta"]["content"] for piece in pieces]
    assert "".join(texts) == "hello big world" and len(texts) == 3
    assert finish["choices"][0]["finish_reason"] == "stop" and "type" not in finish
    assert done["type"] == "done" and isinstance(done["response_time_ms"], int)
    assert done["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert len({event["id"] for event in (first, *pieces, finish, done)}) == 1


def test_an_unstreamed_answer_has_all_documented_fields(server: ChatServer) -> None:
    response = post(server, say("hello world", stream=False, model="svc/slm-3b-int4"))
    assert response.status_code == 200
    body = response.json()
    assert UUID(body.pop("chat_id")) and body.pop("id").startswith("chatcmpl-")
    assert abs(body.pop("created") - time.time()) < 60
    assert isinstance(body.pop("response_time_ms"), int)
    assert body == {
        "object": "chat.completion",
        "model": "svc/echo",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello world"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4},
    }


def test_a_chat_is_saved_continued_listed_and_deleted(server: ChatServer) -> None:
    chat_id = post(server, say("the first", stream=False)).json()["chat_id"]
    again = post(server, say("the second", chat_id=chat_id))
    assert "type" not in events(again)[0]  # only a new chat is announced
    assert events(again)[-1]["usage"]["prompt_tokens"] == 6
    saved = httpx.get(f"{server.url}/chats/{chat_id}", headers=server.headers).json()
    assert saved["title"] == "the first"
    assert [(m["role"], m["content"]) for m in saved["messages"]] == [
        ("user", "the first"),
        ("assistant", "the first"),
        ("user", "the second"),
        ("assistant", "the second"),
    ]
    listed = httpx.get(f"{server.url}/chats?limit=1", headers=server.headers).json()
    assert listed["data"][0]["chat_id"] == chat_id
    pagination = listed["pagination"]
    assert pagination["page"] == 1 and pagination["limit"] == 1
    assert pagination["pages"] == pagination["total"] >= 1
    gone = httpx.delete(f"{server.url}/chats/{chat_id}", headers=server.headers)
    assert gone.status_code == 200 and gone.json()["success"] is True
    for response in (
        httpx.get(f"{server.url}/chats/{chat_id}", headers=server.headers),
        httpx.delete(f"{server.url}/chats/{chat_id}", headers=server.headers),
        post(server, say("hello", chat_id=chat_id)),
    ):
        assert response.status_code == 404
        assert response.json()["error"] == "chat_not_found"


def test_save_chat_false_saves_nothing(server: ChatServer) -> None:
    before = httpx.get(f"{server.url}/chats", headers=server.headers).json()["pagination"]["total"]
    assert events(post(server, say("secret", save_chat=False)))
    after = httpx.get(f"{server.url}/chats", headers=server.headers).json()["pagination"]["total"]
    assert after == before


LONG = "It reads files. " * 600
UNNAMED = {"type": "json_schema", "json_schema": {"name": "a"}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": 7}]}, "content"),
        ({"messages": [{"role": "user", "content": []}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"reasoning_effort": "most"}, "reasoning_effort"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"seed": 2**63}, "seed"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"stream": "true"}, "stream"),
        ({"save_chat": 1}, "save_chat"),
        ({"chat_id": 5}, "chat_id"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "enable_thinking"),
        ({"text": "correct me"}, "text"),
        ({"tools": [{"type": "retrieval"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
        ({"tool": [{"name": "f"}, {"name": "f"}]}, "names must be unique"),
        ({"tool": [{"name": "f", "parameters": "none"}]}, "tool.0.parameters"),
        ({"tool": [{"name": f"f{i}"} for i in range(129)]}, "128"),
        ({"tool": [{"name": f"f{i}"} for i in range(9)], "tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tool": [{"name": "f"}], "tool_choice": {"function": {"name": "g"}}},
            "no tool has that name",
        ),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
        ({"response_format": UNNAMED}, "response_format.json_schema.schema: Field required"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema: Field"),
        ({"tool_choice": "any"}, "tool_choice: Input should be 'none', 'auto' or 'required'"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.function: Field"),
        ({"messages": [{"content": "x"}]}, "messages.0.role: Field required"),
    ],
)
def test_an_invalid_field_is_named(server: ChatServer, fields: dict[str, Any], named: str) -> None:
    response = post(server, {**say("hello"), **fields})
    body = response.json()
    assert response.status_code == 400 and body["success"] is False
    assert body["error"] == "validation_error" and named in body["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}],
                }
            ]
        },
        {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "a b"}]},
        {"top_k": 20.0, "temperature": 0, "top_p": 1, "min_p": 0, "seed": -1},
        {"max_tokens": 9, "stop": "z", "n": 1, "logprobs": False, "user": "u", "extra": {}},
        {"stop": ["x", "y"], "presence_penalty": -2, "frequency_penalty": 2},
        {"temperature": None, "max_tokens": None, "stop": None, "tools": [], "chat_id": None},
        {"chat_template_kwargs": {"enable_thinking": True}, "stream_options": None},
        {"stream_options": {"include_usage": True}, "response_format": {"type": "text"}},
        {
            "stop": [],
            "tools": [{"type": "function", "function": {"name": "f", "description": LONG}}],
        },
    ],
)
def test_optional_openai_fields_are_accepted(server: ChatServer, fields: dict[str, Any]) -> None:
    assert events(post(server, {**say("a b"), **fields}))[-1]["type"] == "done"


def test_errors_before_the_first_streamed_event_have_their_http_status(server: ChatServer) -> None:
    too_long = post(server, say("word " * 80))
    assert (too_long.status_code, too_long.json()["error"]) == (400, "context_length_exceeded")
    unknown = post(server, say("hi", model="gpt-none"))
    assert (unknown.status_code, unknown.json()["error"]) == (404, "model_not_found")
    assert "svc/echo" in unknown.json()["message"]
    refused = httpx.post(server.url + PATH, json=say("hi"))
    assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
    for chat_id in (str(uuid4()), "no-uuid"):
        missing = post(server, say("hi", chat_id=chat_id))
        assert (missing.status_code, missing.json()["error"]) == (404, "chat_not_found")


@pytest.mark.parametrize("dialect", ["/openai/v1/chat/completions", PATH])
def test_openai_clients_get_openai_defaults_and_errors(server: ChatServer, dialect: str) -> None:
    headers = {} if dialect != PATH else {"X-Stainless-Lang": "python"}
    assert post(server, say("hello"), dialect, **headers).json()["object"] == "chat.completion"
    assert events(post(server, say("hello", stream=True), dialect, **headers))
    wrong = post(server, say("hello", temperature=3), dialect, **headers).json()
    assert wrong["error"]["param"] == "temperature"
    assert wrong["error"]["type"] == "invalid_request_error"


def test_a_disconnect_stops_a_stream_and_saves_the_partial_answer(slow_server: ChatServer) -> None:
    text = " ".join(f"w{n}" for n in range(40))  # 20 seconds
    with httpx.stream(
        "POST", slow_server.url + PATH, json=say(text), headers=slow_server.headers
    ) as response:
        chat_id = json.loads(next(response.iter_lines()).removeprefix("data: "))["chat_id"]
    saved = wait_for_chat(slow_server, chat_id)
    assert len(saved["messages"][1]["content"].split()) <= 20


def test_a_disconnect_stops_an_unstreamed_answer_and_saves_a_part(slow_server: ChatServer) -> None:
    text = " ".join(f"v{n}" for n in range(40))
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            slow_server.url + PATH,
            json=say(text, stream=False),
            headers=slow_server.headers,
            timeout=2.5,
        )
    listed: list[dict[str, Any]] = []
    until = time.monotonic() + PATIENCE_S
    while not listed and time.monotonic() < until:
        chats = httpx.get(f"{slow_server.url}/chats", headers=slow_server.headers).json()["data"]
        listed = [chat for chat in chats if chat["title"].startswith("v0")]
        time.sleep(0.02)
    saved = wait_for_chat(slow_server, listed[0]["chat_id"])
    assert 1 <= len(saved["messages"][1]["content"].split()) <= 20


def wait_for_chat(server: ChatServer, chat_id: str) -> dict[str, Any]:
    """The chat, once it is saved after its client disconnected."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        response = httpx.get(f"{server.url}/chats/{chat_id}", headers=server.headers)
        if response.status_code == 200:
            body: dict[str, Any] = response.json()
            return body
        time.sleep(0.02)
    pytest.fail("the chat was not saved")


async def test_a_zero_retention_workspace_saves_no_chat(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    await client.put("/auth/workspace", headers=auth, json={"retention": "zero"})
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": False, "save_chat": True}
    said = await client.post("/v1/chat/completions", headers=auth, json=body)
    assert said.status_code == 200
    assert (await client.get("/chats", headers=auth)).json()["data"] == []
