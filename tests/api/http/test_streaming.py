import asyncio
import json
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from api.http import streaming
from api.http.errors import ApiError
from api.http.streaming import EventStream, error_frame, while_connected
from api.native.chat.completions import DONE, CompletionFrames, answer_body
from models.llm.base import GenerationDelta, TokenUsage
from tests.patience import PATIENCE_S

Message = MutableMapping[str, Any]

FRAMES = CompletionFrames("chatcmpl-1", 1_700_000_000, "svc/echo")


def parse(frame: bytes) -> dict[str, Any]:
    """As the strictest reader would: one line of ASCII, `data: `, JSON, an empty line."""
    text = frame.decode("ascii")
    assert text.startswith("data: ") and text.endswith("\n\n")
    assert text.count("\n") == 2 and "\r" not in text
    body: dict[str, Any] = json.loads(text[6:])
    return body


@given(st.text())
def test_any_text_survives_in_one_line(text: str) -> None:
    body = parse(FRAMES.content(text))
    assert body["choices"] == [{"index": 0, "delta": {"content": text}, "finish_reason": None}]


@given(st.text(), st.text(), st.lists(st.text(), max_size=4))
def test_thoughts_and_calls_survive_in_one_line_each(
    said: str, thought: str, pieces: list[str]
) -> None:
    head = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    deltas = [
        GenerationDelta(said, reasoning=thought),
        GenerationDelta(tool_calls=({"index": 0, **head},)),
        *(
            GenerationDelta(tool_calls=({"index": 0, "function": {"arguments": piece}},))
            for piece in pieces
        ),
    ]
    whole, read = GenerationDelta(), GenerationDelta()
    for delta in deltas:
        whole += delta
        choice = parse(FRAMES.piece(delta))["choices"][0]["delta"]
        calls = tuple(choice.get("tool_calls", ()))
        thoughts = choice.get("reasoning_content", "")
        read += GenerationDelta(choice["content"], tool_calls=calls, reasoning=thoughts)
    assert answer_body(read) == answer_body(whole)
    assert whole.calls()[0]["function"]["arguments"] == "".join(pieces)


def test_what_comes_at_once_has_a_line_for_the_text_and_one_for_each_piece_of_a_call() -> None:
    pieces = tuple({"index": 0, "function": {"arguments": text}} for text in ("{", "}"))
    together = FRAMES.piece(GenerationDelta("text", tool_calls=pieces))
    lines = [parse(line + b"\n\n") for line in together.split(b"\n\n")[:-1]]
    deltas = [line["choices"][0]["delta"] for line in lines]
    calls = [{"content": "", "tool_calls": [piece]} for piece in pieces]
    assert deltas == [{"content": "text"}, *calls]


def test_an_answer_without_calls_or_thoughts_has_only_its_text() -> None:
    answer = GenerationDelta()
    assert answer_body(answer) == {"role": "assistant", "content": ""}


@given(st.text(), st.sampled_from(["overloaded", "unavailable"]))
def test_any_error_survives_in_one_line(message: str, code: str) -> None:
    body = parse(error_frame(ApiError(code, message)))
    assert body["type"] == "error" and body["message"] == message
    assert body["error"] == {
        "message": message,
        "type": "server_error",
        "code": code,
        "param": None,
    }


def test_every_line_has_what_openai_clients_read() -> None:
    usage = TokenUsage(3, 4)
    for frame in (
        FRAMES.begin("some-chat"),
        FRAMES.begin(None),
        FRAMES.content("hello"),
        FRAMES.finish("stop"),
        FRAMES.done(12, usage),
    ):
        body = parse(frame)
        assert body["id"] == "chatcmpl-1" and body["object"] == "chat.completion.chunk"
        assert body["model"] == "svc/echo" and isinstance(body["created"], int)
        assert len(body["choices"]) == 1
        assert isinstance(body["choices"][0]["delta"]["content"], str)


def test_the_done_line_carries_the_usage() -> None:
    body = parse(FRAMES.done(12, TokenUsage(3, 4)))
    assert body["type"] == "done" and body["response_time_ms"] == 12
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


class Connection:
    """An ASGI connection whose client leaves when told."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent)


async def test_a_stream_ends_with_its_last_frame() -> None:
    async def frames() -> AsyncGenerator[bytes, None]:
        yield FRAMES.content("a")
        yield DONE

    connection = Connection()
    await EventStream(frames())({"type": "http"}, connection.receive, connection.send)
    assert connection.body == FRAMES.content("a") + DONE
    headers = dict(connection.sent[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert headers[b"cache-control"] == b"no-cache, no-transform"
    assert b"content-length" not in headers


async def test_a_client_that_leaves_closes_the_frames_while_one_is_awaited() -> None:
    closed = asyncio.Event()

    async def frames() -> AsyncGenerator[bytes, None]:
        try:
            yield FRAMES.content("a")
            await asyncio.sleep(3600)
        finally:
            closed.set()

    connection = Connection()
    asyncio.get_running_loop().call_later(0.05, connection.left.set)
    response = EventStream(frames())
    async with asyncio.timeout(PATIENCE_S):
        await response({"type": "http"}, connection.receive, connection.send)
    assert closed.is_set()


async def test_an_idle_stream_gets_comment_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_AFTER_S", 0.02)

    connection = Connection()

    async def frames() -> AsyncGenerator[bytes, None]:
        yield FRAMES.content("a")
        async with asyncio.timeout(PATIENCE_S):
            while b": keep-alive" not in connection.body:
                await asyncio.sleep(0.01)
        yield DONE

    await EventStream(frames())({"type": "http"}, connection.receive, connection.send)
    assert b": keep-alive\n\n" in connection.body
    assert connection.body.replace(b": keep-alive\n\n", b"") == FRAMES.content("a") + DONE


async def test_work_is_cancelled_when_the_client_leaves() -> None:
    connection = Connection()
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    asyncio.get_running_loop().call_later(0.02, connection.left.set)
    with pytest.raises(ClientDisconnect):
        await while_connected(connection.receive, work())
    assert cancelled.is_set()


async def test_work_gives_its_result_or_its_error_to_a_client_that_stays() -> None:
    async def work(fails: bool) -> int:
        if fails:
            raise ValueError("broken")
        return 7

    assert await while_connected(Connection().receive, work(False)) == 7
    with pytest.raises(ValueError, match="broken"):
        await while_connected(Connection().receive, work(True))


async def test_a_client_that_leaves_before_the_first_frame_ends_its_source() -> None:
    class Source:
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    async def frames() -> AsyncGenerator[bytes, None]:
        raise AssertionError("begun")
        yield b""

    async def send(message: Message) -> None:
        await asyncio.Event().wait()  # the connection is full

    connection, source = Connection(), Source()
    connection.left.set()
    await EventStream(frames(), source)({"type": "http"}, connection.receive, send)
    assert source.closed
