import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncGenerator, MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http import streaming
from api.http.errors import ApiError
from api.http.streaming import BASE64_STEP, Base64Json, EventStream, error_frame
from api.native.chat.completions import DONE, CompletionFrames, answer_body
from models.llm.base import GenerationDelta
from pipelines.chat.pipeline import Completion
from tests.patience import PATIENCE_S
from tests.pipelines.storage.on_disk import written

Message = MutableMapping[str, Any]


def completion() -> Completion:
    fields = SimpleNamespace(
        id="chatcmpl-1",
        created=1_700_000_000,
        model="svc/echo",
    )
    return cast(Completion, fields)


FRAMES = CompletionFrames(completion())


def parse(frame: bytes) -> dict[str, Any]:
    """Parses strictly: one line of ASCII, `data: `, JSON, an empty line."""
    text = frame.decode("ascii")
    assert text.startswith("data: ") and text.endswith("\n\n")
    assert text.count("\n") == 2 and "\r" not in text
    body: dict[str, Any] = json.loads(text[6:])
    return body


@given(st.text())
def test_any_text_is_encoded_in_one_event_line(text: str) -> None:
    body = parse(FRAMES.content(text))
    assert body["choices"] == [{"index": 0, "delta": {"content": text}, "finish_reason": None}]


@given(st.text(), st.text(), st.lists(st.text(), max_size=4))
def test_reasoning_and_tool_calls_are_encoded_in_event_lines_without_loss(
    content: str, reasoning: str, pieces: list[str]
) -> None:
    head = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    deltas = [
        GenerationDelta(content, reasoning=reasoning),
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
        reasonings = choice.get("reasoning_content", "")
        read += GenerationDelta(choice["content"], tool_calls=calls, reasoning=reasonings)
    assert answer_body(read) == answer_body(whole)
    assert whole.calls()[0]["function"]["arguments"] == "".join(pieces)


def test_text_and_tool_calls_of_a_delta_become_separate_events() -> None:
    pieces = tuple({"index": 0, "function": {"arguments": text}} for text in ("{", "}"))
    together = FRAMES.piece(GenerationDelta("text", tool_calls=pieces))
    lines = [parse(line + b"\n\n") for line in together.split(b"\n\n")[:-1]]
    deltas = [line["choices"][0]["delta"] for line in lines]
    calls = [{"content": "", "tool_calls": [piece]} for piece in pieces]
    assert deltas == [{"content": "text"}, *calls]


@given(st.text(), st.sampled_from(["overloaded", "unavailable"]))
def test_any_error_is_encoded_in_one_event_line(message: str, code: str) -> None:
    body = parse(error_frame(ApiError(code, message)))
    assert body["type"] == "error" and body["message"] == message
    assert body["error"] == {
        "message": message,
        "type": "server_error",
        "code": code,
        "param": None,
    }


class Connection:
    """An ASGI connection whose client disconnects when `disconnected` is set."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.disconnected = asyncio.Event()

    async def receive(self) -> Message:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent)


async def test_an_event_stream_sends_all_frames_with_streaming_headers() -> None:
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


async def test_an_idle_stream_sends_keep_alive_comments(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_a_disconnect_before_the_first_frame_closes_the_source() -> None:
    class Source:
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    async def frames() -> AsyncGenerator[bytes, None]:
        raise AssertionError("begun")
        yield b""

    async def send(message: Message) -> None:
        await asyncio.Event().wait()  # the client reads nothing

    connection, source = Connection(), Source()
    connection.disconnected.set()
    await EventStream(frames(), source)({"type": "http"}, connection.receive, send)
    assert source.closed


async def test_no_item_is_taken_after_the_connection_was_cut() -> None:
    """A server that cuts a stalled reader reports the disconnect, and ends the waiting send."""
    taken: list[bytes] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        for frame in (b"first", b"second", b"third"):
            taken.append(frame)
            yield frame

    connection, writable = Connection(), asyncio.Event()

    def cut() -> None:
        connection.disconnected.set()
        writable.set()

    async def send(message: Message) -> None:
        if message.get("body") == b"second":
            asyncio.get_running_loop().call_later(0.01, cut)
            await writable.wait()

    await EventStream(frames())({"type": "http"}, connection.receive, send)
    assert taken == [b"first", b"second"]


@pytest.mark.parametrize(
    "length", [0, 1, 2, 3, BASE64_STEP - 1, BASE64_STEP, BASE64_STEP + 1, 5 * BASE64_STEP // 2]
)
async def test_base64_sent_in_parts_is_one_json_object_of_the_stated_length(length: int) -> None:
    data = bytes(index % 251 for index in range(length))
    others = {"words": [{"word": "né"}], "rate": 24_000}
    answer = Base64Json("audio", written(data), others)
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError("the client left")

    await answer({}, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    assert len(body) == int(answer.headers["content-length"])
    read = json.loads(body)
    assert b64decode(read.pop("audio"), validate=True) == data
    assert read == others
    assert max(len(message.get("body", b"")) for message in sent) <= 4 * BASE64_STEP // 3 + 200
