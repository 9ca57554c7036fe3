"""Conversation over Wyoming: the chat model answers, whole and streamed."""

import pytest

from tests.api.wyoming.conftest import Home, without_credit

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_sentence_is_answered_as_a_whole(home: Home) -> None:
    async with home.client(version="1.6.2") as client:
        await client.send("transcript", text="turn on the light", language="en")
        event = await client.receive()
    assert event is not None and event[0] == "handled"
    assert "turn on the light" in event[1]["text"]
    assert await home.units("chat") > 0


async def test_the_pieces_of_a_streamed_answer_are_the_whole_one(home: Home) -> None:
    async with home.client(version="1.7.0") as client:
        said = "**One** two `three` \U0001f600\n- four five."
        await client.send("transcript", text=said, context={"conversation_id": "c1"})
        events = await client.until("handled-stop")
    kinds = [kind for kind, _, _ in events]
    assert kinds[0] == "handled-start" and kinds[-2:] == ["handled", "handled-stop"]
    assert set(kinds[1:-2]) == {"handled-chunk"}
    assert "".join(data["text"] for _, data, _ in events[1:-2]).strip() == events[-2][1]["text"]
    assert events[-2][1]["text"].split() == ["One", "two", "three", "four", "five."]
    assert events[-2][1]["context"] == {"conversation_id": "c1"}


async def test_the_reasoning_of_the_model_is_not_in_the_answer(home: Home) -> None:
    async with home.client(version="1.7.0") as client:
        said = "<think>Let me see. There are two.</think>One two. <thinking>Is that"
        await client.send("transcript", text=said)
        events = await client.until("handled-stop")
    assert events[-2][1]["text"] == "One two."


async def test_a_conversation_goes_on_over_connections_and_is_not_stored(home: Home) -> None:
    used = []
    for conversation in ("k1", "k1", "k2"):
        before = await home.units("chat")
        async with home.client(version=None) as client:
            context = {"conversation_id": conversation, "device_id": "kitchen"}
            await client.send("transcript", text="one two three", context=context)
            await client.until("handled")
        used.append(await home.units("chat") - before)
    assert used[1] > used[0] == used[2]  # the prompt has the earlier turn
    history = home.services.chat.history
    assert await history.page(home.books.workspace_id, 1, 10) == ([], 0)


async def test_without_credit_the_sentence_is_not_handled(home: Home) -> None:
    async with without_credit(home), home.client() as client:
        await client.send("transcript", text="turn on the light")
        event = await client.receive()
    assert event is not None and event[0] == "not-handled" and "credit" in event[1]["text"]


@pytest.mark.parametrize("kind", ["recognize", "intent", "detect"])
async def test_services_that_there_are_not_answer_with_an_error(home: Home, kind: str) -> None:
    async with home.client() as client:
        await client.send(kind, text="turn on the light")
        event = await client.receive()
    assert event is not None and event[0] == "error" and "not supported" in event[1]["text"]
