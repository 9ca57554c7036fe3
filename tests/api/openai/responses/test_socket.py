"""The WebSocket of the Responses dialect: order, cancellation, errors, browser tokens, money."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection

from api.http.admission import BurstLimit
from api.openai.responses.socket import MAX_WAITING
from telemetry import metrics
from tests.api.native.test_visitors import browser_token
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.patience import until

PATH = "/openai/v1/responses"
Event = dict[str, Any]


@asynccontextmanager
async def opened(server: SocketServer, key: str | None = None) -> AsyncIterator[ClientConnection]:
    headers = {"Authorization": f"Bearer {key or server.key}"}
    async with connect(f"ws://{server.address}{PATH}", additional_headers=headers) as socket:
        yield socket


async def create(socket: ClientConnection, text: str, **fields: Any) -> None:
    body = {"type": "response.create", "model": "svc/echo", "input": text, **fields}
    await socket.send(json.dumps(body))


async def until_end(socket: ClientConnection) -> list[Event]:
    events: list[Event] = []
    ends = ("completed", "incomplete", "failed", "error")
    while not events or events[-1]["type"].removeprefix("response.") not in ends:
        events.append(json.loads(await socket.recv()))
    return events


def text_of(event: Event) -> str:
    return "".join(item["content"][0]["text"] for item in event["response"]["output"])


async def test_requests_are_answered_in_order_and_refused_beyond_a_bound(
    server: SocketServer,
) -> None:
    async with opened(server) as socket:
        for number in range(MAX_WAITING + 3):
            await create(socket, f"text {number} " + "word " * 200, stream_id=f"lane {number}")
        refused: dict[str, str] = {}
        answers: list[tuple[str, str]] = []
        while len(answers) + len(refused) < MAX_WAITING + 3:
            last = (await until_end(socket))[-1]
            if last["type"] == "error":
                refused[last["stream_id"]] = last["error"]["code"]
            else:
                answers.append((last["stream_id"], text_of(last)[:7].strip()))
        assert set(refused.values()) <= {"concurrency_limit"} and len(refused) <= 2
        numbers = [int(lane.removeprefix("lane ")) for lane, _ in answers]
        assert numbers == sorted(numbers)
        assert [text for _, text in answers] == [f"text {number}"[:7] for number in numbers]


async def test_a_cancelled_response_ends_and_costs_what_was_written(server: SocketServer) -> None:
    async with opened(server) as socket:
        await create(socket, "word " * 1000, store=False)
        created = json.loads(await socket.recv())["response"]["id"]
        while json.loads(await socket.recv())["type"] != "response.output_text.delta":
            pass
        cancel = json.dumps({"type": "response.cancel", "response_id": created})
        await socket.send(cancel)
        last = (await until_end(socket))[-1]
        assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
        assert len(text_of(last)) < 5000 and last["response"]["output"][0]["status"] == (
            "incomplete"
        )
        await socket.send(cancel)  # has no effect: it may cross the last event
        await create(socket, "next", store=False, previous_response_id=created)
        assert (await until_end(socket))[-1]["error"]["code"] == "previous_response_not_found"
        await create(socket, "next")
        assert text_of((await until_end(socket))[-1]) == "next"
    units, _ = await (await server.books()).charged("chat")
    assert units < 2000  # less than the prompt and its whole echo


@pytest.mark.parametrize(
    ("message", "param", "text"),
    [
        ("[", None, "not JSON"),
        (b"{}", None, "send JSON as text"),
        ({"type": "response.steer"}, "type", "response.create"),
        ({"type": 7}, "type", "'7'"),
        ({"type": "response.create"}, "input", "Field required"),
        ({"type": "response.create", "input": "a", "stream_id": 7}, "stream_id", "string"),
        ({"type": "response.create", "input": "a", "generate": False}, "generate", "omit it"),
        ({"type": "response.create", "input": "a", "background": True}, "background", "stream"),
        ({"type": "response.create", "input": "a", "temperature": 3}, "temperature", "less"),
        ({"type": "response.cancel"}, "response_id", "in progress"),
    ],
)
async def test_wrong_messages_are_named_and_the_socket_continues(
    server: SocketServer, message: Any, param: str | None, text: str
) -> None:
    async with opened(server) as socket:
        await socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
        (event,) = await until_end(socket)
        assert event["error"]["param"] == param and text in event["error"]["message"], event
        assert event["status"] == (404 if param == "response_id" else 400)
        await create(socket, "still here")
        assert text_of((await until_end(socket))[-1]) == "still here"


async def test_a_browser_token_stores_and_names_nothing(server: SocketServer) -> None:
    async with opened(server) as socket:
        await create(socket, "secret")
        stored = (await until_end(socket))[-1]["response"]["id"]
    token = await browser_token(server, "chat")
    async with opened(server, token) as socket:
        await create(socket, "one")
        first = (await until_end(socket))[-1]["response"]
        assert first["store"] is False
        await create(socket, "two", previous_response_id=first["id"])  # of this socket
        assert (await until_end(socket))[-1]["response"]["usage"]["input_tokens"] == 3
        refusals = []
        for fields in ({"store": True}, {"previous_response_id": stored}):
            await create(socket, "more", **fields)
            refusals.append((await until_end(socket))[-1]["error"]["code"])
        item = {"type": "item_reference", "id": stored.replace("resp_", "msg_")}
        await create(socket, [item])  # type: ignore[arg-type]
        refusals.append((await until_end(socket))[-1]["error"]["code"])
    assert refusals == ["insufficient_scope", "previous_response_not_found", "insufficient_scope"]


async def test_a_socket_is_closed_with_the_code_that_clients_reconnect_for(
    server: SocketServer,
) -> None:
    async with opened(server) as socket:
        for _ in range(20):
            await socket.send("[")
        codes = [(await until_end(socket))[-1]["error"]["code"] for _ in range(21)]
        assert codes == [*["invalid_json"] * 20, "rate_limited"]
    await until(lambda: socket.close_code == 1008)


async def test_an_unstored_response_after_a_stored_one_keeps_the_conversation(
    server: SocketServer,
) -> None:
    async with opened(server) as socket:
        previous = None
        for text, tokens, stores in (("a b c", 3, True), ("d", 7, False), ("e", 9, False)):
            await create(socket, text, store=stores, previous_response_id=previous)
            response = (await until_end(socket))[-1]["response"]
            assert response["usage"]["input_tokens"] == tokens
            previous = response["id"]


async def test_requests_are_cancelled_before_they_begin_and_refusals_keep_the_socket(
    server: SocketServer,
) -> None:
    async with opened(server) as socket:
        await create(socket, "word " * 1000, stream_id="a", store=False)
        await create(socket, "never", stream_id="b")
        for stream_id in ("b", "a", "a"):  # one that waits, then the first, perhaps twice
            await socket.send(json.dumps({"type": "response.cancel", "stream_id": stream_id}))
        ends = {}
        for _ in range(2):
            last = (await until_end(socket))[-1]
            ends[last["stream_id"]] = last
        assert ends["b"]["error"]["code"] == "response_cancelled"
        assert ends["a"].get("response", {"status": "cancelled"})["status"] == "cancelled"
        await create(socket, "between", stream_id="c")
        while (await until_end(socket))[-1]["stream_id"] != "c":
            pass
        for _ in range(21):
            await create(socket, "a", temperature=3)
            assert (await until_end(socket))[-1]["error"]["param"] == "temperature"
        await create(socket, "still here")
        assert text_of((await until_end(socket))[-1]) == "still here"


async def test_a_refusal_on_a_socket_counts_as_that_of_a_socket(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [metrics.overload_refusals.labels(kind)._value for kind in (PATH, "socket")]
    before = [count.get() for count in counts]
    async with opened(server) as socket:
        monkeypatch.setattr(BurstLimit, "enter", lambda *_: False)
        await create(socket, "a")
        assert (await until_end(socket))[-1]["error"]["code"] == "overloaded"
    assert [count.get() for count in counts] == [before[0], before[1] + 1]
