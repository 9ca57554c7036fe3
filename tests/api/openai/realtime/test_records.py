"""What remains of a session: the saved chat, and the event for webhooks."""

import asyncio
from datetime import datetime
from typing import Any

import httpx
import pytest
from sqlmodel import select

from db.chats import ChatEntry
from models.llm.base import GenerationRequest
from pipelines.chat.pipeline import ChatRequest
from tests.api.money import Books
from tests.api.openai.realtime.client import RealtimeClient
from tests.api.openai.realtime.test_client_secrets import browser, secret_of
from tests.api.openai.realtime.test_conversation import LONG, says, session
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import FakeTranscriber, quiet

MODEL = "model=gpt-realtime"


async def get(
    server: SocketServer, path: str, body: dict[str, str] | None = None
) -> httpx.Response:
    """Send a GET, or a POST with a body."""
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
        method = "POST" if body else "GET"
        return await http.request(method, f"http://{server.address}{path}", json=body)


async def chat_of(server: SocketServer, chat_id: str) -> list[tuple[str, str]]:
    await server.until_empty()
    answer = await get(server, f"/chats/{chat_id}")
    assert answer.status_code == 200, answer.text
    return [(one["role"], one["content"]) for one in answer.json()["messages"]]


def created(client: RealtimeClient) -> dict[str, Any]:
    shown: dict[str, Any] = client.events[0]["session"]
    return shown


async def test_a_session_is_saved_as_a_chat_when_it_asks_for_it(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("What time is it?")
    async with session(server, f"{MODEL}&save_chat=true") as client:
        chat_id = created(client)["chat_id"]
        assert created(client)["save_chat"] is True
        await client.utter(1.0, 0.8)
        await client.until("response.done")
        await client.say("And the date?", output_modalities=["text"])
    assert await chat_of(server, chat_id) == [
        ("user", "What time is it?"),
        ("assistant", "What time is it?"),
        ("user", "And the date?"),
        ("assistant", "And the date?"),
    ]
    (listed,) = (await get(server, "/chats")).json()["data"]
    assert (listed["chat_id"], listed["title"]) == (chat_id, "What time is it?")
    rows = await server.services.infrastructure.database.read(
        lambda rows: list(rows.exec(select(ChatEntry)))
    )
    assert all("time" not in row.content and "date" not in row.content for row in rows)
    assert {row.model for row in rows if row.role == "assistant"} != {None}


async def test_no_client_sees_the_field_that_did_not_ask_for_it(server: SocketServer) -> None:
    async with session(server) as client:
        assert not {"save_chat", "chat_id"} & created(client).keys()
        await client.say("Hi.")
    await server.until_empty()
    assert (await get(server, "/chats")).json()["data"] == []


async def test_an_update_switches_the_saving_of_a_session_on_and_off(
    server: SocketServer,
) -> None:
    async with session(server) as client:
        await client.update(output_modalities=["text"])
        await client.say("One.")
        assert (await client.update(save_chat=True))["chat_id"]
        assert "chat_id" not in await client.update(save_chat=None)
    await server.until_empty()
    assert (await get(server, "/chats")).json()["data"] == []


async def test_the_chat_has_calls_and_of_an_interrupted_answer_what_was_heard(
    server: SocketServer,
) -> None:
    tool = {"type": "function", "name": "clock", "parameters": {"type": "object"}}
    call = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
    async with session(server, f"{MODEL}&save_chat=true") as client:
        await client.update(tools=[tool])
        response = await client.say(call)
        (item,) = [one for one in response["output"] if one["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": "Noon."}
        await client.send("conversation.item.create", item=result)
        await client.update(tools=[])
        part = {"type": "input_text", "text": LONG}
        user = {"type": "message", "role": "user", "content": [part]}
        await client.send("conversation.item.create", item=user)
        await client.send("response.create")
        for _ in range(12):
            await client.until("response.output_audio.delta")
        client.socket.transport.abort()
    saved = await chat_of(server, created(client)["chat_id"])
    roles = [role for role, _ in saved]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    assert saved[2][1] == "Noon."
    said = saved[-1][1]
    assert said and LONG.startswith(said) and len(said) < len(LONG) / 3


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_workspace_without_retention_saves_nothing(when: str, server: SocketServer) -> None:
    async def stop_retention() -> None:
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
            url = f"http://{server.address}/auth/workspace"
            assert (await http.put(url, json={"retention": "zero"})).status_code == 200

    if when == "before":
        await stop_retention()
    async with session(server, f"{MODEL}&save_chat=true") as client:
        assert (created(client)["chat_id"] is None) == (when == "before")
        await client.say("Hi.", output_modalities=["text"])
        await stop_retention()
    await server.until_empty()
    assert (await get(server, "/chats")).json()["data"] == []


async def test_an_account_that_is_erased_meanwhile_keeps_no_chat(
    server: SocketServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with session(server, f"{MODEL}&save_chat=true") as client:
        await client.say("Hi.", output_modalities=["text"])
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
            url = f"http://{server.address}/auth/account"
            assert (await http.delete(url)).status_code in (200, 204)
    await server.until_empty()
    database = server.services.infrastructure.database
    assert await database.read(lambda rows: list(rows.exec(select(ChatEntry)))) == []
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_full_workspace_cannot_save_sessions(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.chat.history.ChatHistory._room_mb", lambda *_: 0)
    async with session(server) as client:
        error = await client.error("session.update", session={"save_chat": True})
        assert error["code"] == "plan_required" and "save_chat" in error["message"]
        assert (await client.say("Hi."))["status"] == "completed"
    with pytest.raises(AssertionError):  # an error in place of session.created
        async with session(server, f"{MODEL}&save_chat=true"):
            pass


async def test_webhooks_get_transcript_usage_and_end_of_a_session(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    await books.add_webhook("agent.session.completed")
    heard.answer = says("What time is it?")
    async with session(server, f"{MODEL}&save_chat=true") as client:
        await asyncio.sleep(0.2)
        await client.utter(1.0, 0.8)
        usage = (await client.until("response.done"))["response"]["usage"]
    await server.until_empty()
    (event,) = await books.events()
    data = event["data"]
    assert event["event"] == "agent.session.completed"
    assert data["id"] == created(client)["id"] and data["chat_id"] == created(client)["chat_id"]
    assert data["close_code"] == 1000 and data["duration"] > 0.2
    models = (await get(server, "/openai/v1/models")).json()["data"]
    assert data["model"] in {model["id"] for model in models}  # no alias
    assert datetime.fromisoformat(data["started_at"]).tzinfo is not None
    assert data["usage"] == {
        "seconds": 1.8,
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_token_details"]["text_tokens"],
        "characters": len("What time is it?"),
    }
    user, agent = data["transcript"]
    text = "What time is it?"
    assert (user["role"], user["text"], agent["role"], agent["text"]) == (
        *("user", text),
        *("assistant", text),
    )
    assert 0.1 < user["start"] < agent["start"] < data["duration"]
    assert user["duration"] == pytest.approx(1.0, abs=0.3) and agent["duration"] > 0.3


async def test_sessions_that_did_not_begin_or_only_transcribe_cause_no_event(
    server: SocketServer, books: Books
) -> None:
    await books.add_webhook("agent.session.completed")
    async with session(server, "intent=transcription") as client:
        await client.speak(quiet(0.5))
    with pytest.raises(AssertionError):
        async with session(server, "model=no-such-model"):
            pass
    await server.until_empty()
    assert await books.events() == []


async def test_free_sessions_fill_only_a_share_of_the_storage(
    server: SocketServer, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.http.limits.GB", 6_000)  # the plan has 1,000
    await books.add_webhook("agent.session.completed")
    for number in range(4):
        async with session(server) as client:
            await client.write("x" * 80_000)
            await client.until("conversation.item.done")
        await server.until_empty()
        assert len(await books.events()) == min(number + 1, 2)
    assert await books.kinds() == []


@pytest.mark.parametrize("granted", [False, True])
async def test_a_client_secret_saves_chats_only_where_its_maker_says_so(
    server: SocketServer, granted: bool
) -> None:
    asked: dict[str, Any] = {"save_chat": True} if granted else {}
    secret = await secret_of(server, **asked)
    async with browser(server, secret, f"{MODEL}&save_chat=true") as socket:
        client = RealtimeClient(socket)
        shown = (await client.until("session.created"))["session"]
        changed = await client.update(save_chat=True)
        assert bool(shown["chat_id"]) == bool(changed["chat_id"]) == granted
        await client.say("Hi.", output_modalities=["text"])
    await server.until_empty()
    assert len((await get(server, "/chats")).json()["data"]) == granted


async def test_the_model_reads_tools_ahead_and_which_are_strict(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[GenerationRequest] = []

    async def read_ahead(_: object, request: ChatRequest) -> int:
        read.append(request.generation)
        return 1

    monkeypatch.setattr("pipelines.chat.pipeline.ChatPipeline.read_ahead", read_ahead)
    tools = [{"type": "function", "name": name, "strict": name == "b"} for name in "ab"]
    async with session(server) as client:
        await client.update(tools=tools)
    await server.until_empty()
    assert [tool["function"]["strict"] for tool in read[-1].tools] == [False, True]


async def test_unanswered_prompts_are_limited_by_the_plan(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    async def read_ahead(_: object, request: ChatRequest) -> int:
        read.append(request.generation.messages[0].content)
        return 1

    monkeypatch.setattr("pipelines.chat.pipeline.ChatPipeline.read_ahead", read_ahead)
    plans = server.services.platform.plans
    limits = plans.limits_of("enterprise").model_copy(update={"requests_per_minute": 5})
    monkeypatch.setattr(type(plans), "limits_of", lambda *_, **__: limits)

    async def update(client: RealtimeClient, *names: str) -> None:
        for name in names:
            await client.update(instructions=name)
            await asyncio.sleep(0.02)

    for names in (("a", "b", "c"), ("d", "e", "f", "g")):
        async with session(server) as client:
            await update(client, *names)
        await server.until_empty()
    assert read == ["a", "b", "c", "d", "e"]
    body = {"input": "Count it."}
    counted = await get(server, "/openai/v1/responses/input_tokens", body)
    assert counted.json()["input_tokens"] == 1  # in a window of its own
    monkeypatch.setattr(
        type(plans),
        "limits_of",
        lambda *_, **__: limits.model_copy(update={"requests_per_minute": 6}),
    )
    async with session(server) as client:
        await update(client, "h")
        await client.say("Hi.", output_modalities=["text"])
        await update(client, "i", "j")
    assert [name for name in read[5:] if len(name) == 1] == ["h", "i"]
