"""Responses that are stored: continued, named, read and deleted."""

from collections.abc import Callable
from typing import Any

import httpx

from pipelines.chat.pipeline import wait_for_saves
from tests.api.openai.responses.asking import (
    CALL,
    PATH,
    WEATHER,
    Headers,
    ThinkingEcho,
    prompt,
    refusal,
)


async def test_a_previous_response_is_continued_and_its_instructions_are_not(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    first = (await respond("one", instructions="Be kind.")).json()
    second = (await respond("two", previous_response_id=first["id"])).json()
    assert prompt(engine) == [("user", "one"), ("assistant", "one"), ("user", "two")]
    assert second["previous_response_id"] == first["id"]
    await respond("three", previous_response_id=second["id"], instructions="Be brief.")
    assert prompt(engine)[0] == ("system", "Be brief.")
    assert [text for _, text in prompt(engine)[1:]] == ["one", "one", "two", "two", "three"]


async def test_two_responses_may_continue_the_same_one(
    respond: Callable[..., Any], engine: ThinkingEcho, client: httpx.AsyncClient, auth: Headers
) -> None:
    first = (await respond("one")).json()["id"]
    left = (await respond("left", previous_response_id=first)).json()["id"]
    right = (await respond("right", previous_response_id=first)).json()["id"]
    for previous, branch in ((left, "left"), (right, "right"), (left, "left")):
        await respond("on", previous_response_id=previous)
        assert [text for _, text in prompt(engine)] == ["one", "one", branch, branch, "on"]
    (chat,) = (await client.get("/chats", headers=auth)).json()["data"]
    body = {"messages": [{"role": "user", "content": "last"}], "chat_id": chat["chat_id"]}
    await client.post("/openai/v1/chat/completions", headers=auth, json=body)
    texts = [text for _, text in prompt(engine)]  # of the chat, what leads to its last message
    assert texts == ["one", "one", "left", "left", "on", "on", "last"]


async def test_the_result_of_a_call_alone_continues_its_response(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    called = (await respond(CALL, tools=[WEATHER])).json()
    (call,) = called["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "dry"}
    answer = (await respond([result], previous_response_id=called["id"], tools=[WEATHER])).json()
    assert answer["output"][0]["content"][0]["text"] == "dry"
    assert [one.role for one in engine.asked[-1].messages] == ["user", "assistant", "tool"]
    wrong = await respond([{**result, "call_id": "call_9"}], previous_response_id=called["id"])
    assert refusal(wrong) == (400, "call_id: no earlier call has that id", "call_id")


async def test_stored_items_are_sent_again_by_their_ids(
    respond: Callable[..., Any], engine: ThinkingEcho
) -> None:
    called = (await respond(f"Look: {CALL}", tools=[WEATHER])).json()
    message, call = called["output"]
    named = [{"type": "item_reference", "id": message["id"]}, {"id": call["id"]}]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "dry"}
    await respond([{"role": "user", "content": "Look"}, *named, result])
    user, answer, tool = engine.asked[-1].messages
    assert answer.content == message["content"][0]["text"] == "Look: "
    assert answer.extra["tool_calls"][0]["id"] == tool.extra["tool_call_id"] == call["call_id"]


async def test_a_stored_response_is_read_again_as_it_ended(
    respond: Callable[..., Any], client: httpx.AsyncClient, auth: Headers
) -> None:
    fields = {"tools": [WEATHER], "metadata": {"a": "b"}, "instructions": "Be kind."}
    for given, more in ((f"Look: {CALL}", {}), ("so many words", {"max_output_tokens": 2})):
        made = (await respond(given, **fields, **more)).json()
        read = await client.get(f"{PATH}/{made['id']}", headers=auth)
        assert read.status_code == 200 and read.json() == made


async def test_what_is_not_stored_cannot_be_read_or_continued(
    respond: Callable[..., Any],
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
) -> None:
    made = (await respond(store=False)).json()
    assert made["store"] is False
    assert (await client.get("/chats", headers=auth)).json()["data"] == []
    kept = (await respond()).json()["id"]
    unsaved = (await respond(previous_response_id=kept, store=False)).json()
    for one, headers in (
        (made["id"], auth),
        (unsaved["id"], auth),
        (kept, other_auth),
        ("resp_unknown", auth),
        (kept.replace("resp", "msg"), auth),
    ):
        for method in ("GET", "DELETE"):
            answer = await client.request(method, f"{PATH}/{one}", headers=headers)
            assert refusal(answer) == (404, "no stored response has that id", None)
        answer = await respond("two", previous_response_id=one, headers=headers)
        field = "previous_response_id"
        assert refusal(answer) == (404, "no stored response has that id", field)
        item = await respond([{"id": one.replace("resp", "msg")}], headers=headers)
        assert one.startswith("msg") or refusal(item)[::2] == (404, "input")
    await wait_for_saves()


async def test_a_deleted_response_is_gone_and_its_text_when_nothing_continues_it(
    respond: Callable[..., Any], client: httpx.AsyncClient, auth: Headers, engine: ThinkingEcho
) -> None:
    async def delete(response_id: str) -> int:
        deleted = await client.delete(f"{PATH}/{response_id}", headers=auth)
        assert deleted.is_error or deleted.json() == {
            "id": response_id,
            "object": "response",
            "deleted": True,
        }
        return deleted.status_code

    async def stored() -> list[str]:
        (chat,) = (await client.get("/chats", headers=auth)).json()["data"]
        found = (await client.get(f"/chats/{chat['chat_id']}", headers=auth)).json()
        return [message["content"] for message in found["messages"][::2]]

    first = (await respond("one")).json()["id"]
    second = (await respond("two", previous_response_id=first)).json()["id"]
    left = (await respond("left", previous_response_id=second)).json()["id"]
    right = (await respond("right", previous_response_id=second)).json()["id"]
    assert [await delete(second), await delete(second)] == [200, 404]
    assert await stored() == ["one", "two", "left", "right"]
    assert (await client.get(f"{PATH}/{second}", headers=auth)).status_code == 404
    await respond("on", previous_response_id=left)
    assert [text for _, text in prompt(engine)][::2] == ["one", "two", "left", "on"]
    assert await delete(right) == 200 and await stored() == ["one", "two", "left", "on"]
    assert await delete(first) == 200 and await stored() == ["one", "two", "left", "on"]


async def test_when_all_responses_are_deleted_the_chat_is(
    respond: Callable[..., Any], client: httpx.AsyncClient, auth: Headers
) -> None:
    ids = [(await respond("one")).json()["id"]]
    for text in ("two", "three"):
        made = await respond(text, previous_response_id=ids[-1])
        ids.append(made.json()["id"])
    for one in ids:  # the oldest first
        assert (await client.delete(f"{PATH}/{one}", headers=auth)).status_code == 200
    assert (await client.get("/chats", headers=auth)).json()["data"] == []


async def test_input_items_are_listed_in_pages_and_counted(
    respond: Callable[..., Any], client: httpx.AsyncClient, auth: Headers, other_auth: Headers
) -> None:
    called = (await respond(CALL, tools=[WEATHER], instructions="Be kind.")).json()
    call_id = called["output"][0]["call_id"]
    result = {"type": "function_call_output", "call_id": call_id, "output": "dry"}
    body = {"input": [result], "previous_response_id": called["id"]}
    last = (await respond([result], previous_response_id=called["id"])).json()
    path = f"{PATH}/{last['id']}/input_items"
    listed = (await client.get(f"{path}?order=asc", headers=auth)).json()
    kinds = [item["type"] for item in listed["data"]]
    assert kinds == ["message", "function_call", "function_call_output"] and not listed["has_more"]
    first = (await client.get(f"{path}?limit=2", headers=auth)).json()
    rest = (await client.get(f"{path}?after={first['last_id']}", headers=auth)).json()
    assert [*first["data"], *rest["data"]] == listed["data"][::-1] and first["has_more"]
    assert refusal(await client.get(f"{path}?after=in_1", headers=auth))[2] == "after"
    assert (await client.get(path, headers=other_auth)).status_code == 404
    counted = await client.post(f"{PATH}/input_tokens", headers=auth, json=body)
    expected = {"object": "response.input_tokens", "input_tokens": last["usage"]["input_tokens"]}
    assert counted.json() == expected
    assert (await client.post(f"{PATH}/input_tokens", headers=other_auth, json=body)).is_error
    assert refusal(await client.post(f"{PATH}/{last['id']}/cancel", headers=auth))[0] == 400
    assert refusal(await client.post(f"{PATH}/resp_1/cancel", headers=auth))[0] == 404
