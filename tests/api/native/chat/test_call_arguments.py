"""Arguments of calls, and refusals, in a history, as agents send back what models wrote."""

import json
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from api.services import Services
from models.llm.base import ChatMessage, GenerationRequest
from pipelines.agents.items import Item, as_messages
from tests.api.money import principal_of

Headers = dict[str, str]
CHATS = ["/v1/chat/completions", "/openai/v1/chat/completions"]
RESPONSES = "/openai/v1/responses"
NO_ARGUMENTS = ["", " \n", "null", "{}"]
WRONG = [
    '{"city": "Zürich',
    "{k",
    "not json",
    "5",
    "[1]",
    '"x"',
    '{"a": NaN}',
    '{"a": 1e999}',
    '{"a": %s}' % ("9" * 400),
    r'{"a": "\ud800"}',
    '{"a": "\x01"}',
    '{"a":' * 65 + "1" + "}" * 65,
    "[" * 100_000,
]


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"id": "c1", "type": "function", "function": function}


def chat_body(arguments: str, content: Any = None, **fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": content, "tool_calls": [call(arguments)]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ]
    return {"messages": messages, "save_chat": False, **fields}


def responses_body(arguments: str) -> dict[str, Any]:
    made = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": arguments}
    output = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    return {"store": False, "input": [{"role": "user", "content": "Weather?"}, made, output]}


def arguments_in(request: GenerationRequest) -> list[str]:
    calls = (one for message in request.messages for one in message.extra.get("tool_calls", ()))
    return [one["function"]["arguments"] for one in calls]


@pytest.mark.parametrize("path", [*CHATS, RESPONSES])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_without_arguments_has_an_empty_object(
    client: httpx.AsyncClient,
    auth: Headers,
    prompts: list[GenerationRequest],
    path: str,
    stream: bool,
) -> None:
    for text in NO_ARGUMENTS:
        body = responses_body(text) if path == RESPONSES else chat_body(text)
        answer = await client.post(path, headers=auth, json={**body, "stream": stream})
        assert answer.status_code == 200 and "internal_error" not in answer.text, answer.text
        assert arguments_in(prompts[-1]) == ["{}"]


@pytest.mark.parametrize("path", [*CHATS, RESPONSES])
@pytest.mark.parametrize("arguments", WRONG, ids=range(len(WRONG)))
async def test_arguments_that_no_model_can_read_become_a_string_in_an_object(
    client: httpx.AsyncClient,
    auth: Headers,
    prompts: list[GenerationRequest],
    path: str,
    arguments: str,
) -> None:
    body = responses_body(arguments) if path == RESPONSES else chat_body(arguments)
    answer = await client.post(path, headers=auth, json={**body, "stream": False})
    assert answer.status_code == 200, answer.text
    readable = json.dumps({"arguments": arguments}, ensure_ascii=False)
    assert arguments_in(prompts[-1]) == [readable]


async def test_a_saved_call_that_was_cut_off_does_not_end_its_chat(
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    prompts: list[GenerationRequest],
) -> None:
    principal = await principal_of(services, auth)
    chat_id = uuid4()
    messages = [
        ChatMessage("user", "Weather?"),
        ChatMessage("assistant", "", {"tool_calls": [call('{"city": "Os')]}),
        ChatMessage("tool", "sunny", {"tool_call_id": "c1"}),
    ]
    await services.chat.history.save_conversation(
        principal.workspace_id, chat_id, messages, "svc/echo"
    )
    body = {"messages": [{"role": "user", "content": "And now?"}], "chat_id": str(chat_id)}
    answer = await client.post(CHATS[1], headers=auth, json=body)
    assert answer.status_code == 200, answer.text
    assert arguments_in(prompts[-1]) == [json.dumps({"arguments": '{"city": "Os'})]
    shown = (await client.get(f"/chats/{UUID(answer.json()['chat_id'])}", headers=auth)).json()
    assert shown["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Os'


def test_a_tool_call_that_was_cut_off_can_be_read_again() -> None:
    item = Item("i", "function_call", call_id="c", name="f", arguments='{"city": "Os')
    message, _ = as_messages([item])
    (made,) = message.extra["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == {"arguments": '{"city": "Os'}


async def test_arguments_stay_json_where_a_number_is_masked(
    client: httpx.AsyncClient, auth: Headers, prompts: list[GenerationRequest]
) -> None:
    body = chat_body('{"card": 4111111111111111}', redact=["all"])
    answer = await client.post(CHATS[1], headers=auth, json=body)
    assert answer.status_code == 200, answer.text
    (arguments,) = arguments_in(prompts[-1])
    assert isinstance(json.loads(arguments), dict) and "4111" not in arguments


REFUSAL = {"type": "refusal", "refusal": "I cannot."}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        *((path, {"content": [REFUSAL]}) for path in (*CHATS, RESPONSES)),
        *((path, {"content": None, "refusal": "I cannot."}) for path in CHATS),
    ],
)
async def test_a_refusal_of_an_earlier_answer_is_its_text(
    client: httpx.AsyncClient,
    auth: Headers,
    prompts: list[GenerationRequest],
    path: str,
    fields: dict[str, Any],
) -> None:
    user = {"role": "user", "content": "Why?"}
    name = "input" if path == RESPONSES else "messages"
    body = {name: [user, {"role": "assistant", **fields}, user], "stream": False}
    answer = await client.post(path, headers=auth, json=body)
    assert answer.status_code == 200, answer.text
    assert "X-Ignored-Fields" not in answer.headers
    assert prompts[-1].messages[1] == ChatMessage("assistant", "I cannot.")
    if isinstance(fields["content"], list):
        for role in ("user", "system", "developer", *(["tool"] if path in CHATS else [])):
            message = {"role": role, "tool_call_id": "c1", **fields}
            wrong = {name: [user, message, user], "stream": False}
            refused = await client.post(path, headers=auth, json=wrong)
            assert refused.status_code == 400 and "only parts of type" in refused.text, role


@pytest.mark.parametrize("path", CHATS)
@pytest.mark.parametrize("content", [[], None, ""])
async def test_a_message_with_calls_may_have_no_parts(
    client: httpx.AsyncClient, auth: Headers, path: str, content: Any
) -> None:
    body = chat_body("{}", content, stream=False)
    answer = await client.post(path, headers=auth, json=body)
    assert answer.status_code == 200, answer.text
    body["messages"][2]["content"] = []  # a tool that returns nothing
    assert (await client.post(path, headers=auth, json=body)).status_code == 200
    body["messages"][0]["content"] = []
    assert (await client.post(path, headers=auth, json=body)).status_code == 400


async def test_items_of_answers_and_outputs_may_have_no_parts(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    body = responses_body("{}")
    body["input"][2]["output"] = []
    body["input"].append({"role": "assistant", "content": []})
    body["input"].append({"type": "reasoning", "summary": [], "content": []})
    assert (await client.post(RESPONSES, headers=auth, json=body)).status_code == 200
    body["input"][0]["content"] = []
    assert (await client.post(RESPONSES, headers=auth, json=body)).status_code == 400
