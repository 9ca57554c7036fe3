"""Cartesia's socket `/tts/websocket`, over the tone engine."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.api.cartesia.socket_client import FORMAT, MORE, cartesia
from tests.api.money import Books
from tests.api.sockets.conftest import SocketServer
from tests.stopwatch import stopwatch

CHARACTER_S = 0.06  # of the tone engine


def seconds(events: list[dict[str, Any]]) -> float:
    return sum(len(base64.b64decode(one.get("data", ""))) / 32_000 for one in events)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [one["type"] for one in events if one["type"] != "chunk"]


async def test_one_message_is_spoken_to_its_done(server: SocketServer) -> None:
    async with cartesia(server) as client:
        await client.say("A whole sentence.", add_timestamps=True)
        events = await client.until("done")
    assert seconds(events) == pytest.approx(17 * CHARACTER_S, abs=0.3)
    assert set(kinds(events)) == {"timestamps", "done"}
    words = [one["word_timestamps"] for one in events if "word_timestamps" in one]
    assert [word for one in words for word in one["words"]] == ["A", "whole", "sentence."]
    first, last = events[0], events[-1]
    assert (first["status_code"], first["done"], first["flush_id"]) == (206, False, 1)
    assert first["step_time"] > 0 and (last["status_code"], last["done"]) == (200, True)


async def test_a_context_speaks_sentences_at_once_and_the_rest_at_its_end(
    server: SocketServer,
) -> None:
    async with cartesia(server) as client:
        for piece in ("One sen", "tence. And ", "an", "other"):
            await client.say(piece, **MORE)
        first = await client.until("chunk")
        await client.say("", voice={"id": "none"})  # it keeps its voice
        events = first + await client.until("done")
        await client.say("Again.")  # the id is free
        again = await client.until("done")
    assert seconds(events) == pytest.approx(25 * CHARACTER_S, abs=0.5)
    assert kinds(events) == ["done"] and seconds(again) > 0.2


@pytest.mark.parametrize("delay_ms", [0, 300])
async def test_text_waits_for_its_sentence_no_longer_than_it_may(
    server: SocketServer, delay_ms: int
) -> None:
    loop = asyncio.get_running_loop()
    async with cartesia(server) as client:
        began = loop.time()
        with stopwatch() as waited_s:
            await client.say("Hello", **MORE, max_buffer_delay_ms=delay_ms)
            await client.until("chunk")
            assert waited_s() < 2.5  # without the field it is over 3 s
        assert loop.time() - began >= delay_ms / 1000


async def test_flushes_are_numbered(server: SocketServer) -> None:
    async with cartesia(server) as client:
        await client.say("Stay hungry, ", **MORE)
        await client.say("", **MORE, flush=True)
        first = await client.until("flush_done")
        await client.say("stay foolish.", **MORE, flush=True)
        second = await client.until("flush_done")
        await client.say("")
        rest = await client.until("done")
    for number, events in enumerate((first, second), start=1):
        assert {one["flush_id"] for one in events} == {number} and seconds(events) > 0.4
        assert events[-1]["flush_done"] and not events[-1]["done"]
    assert kinds(rest) == ["done"]


async def test_a_cancelled_context_stops_and_costs_what_was_sent(server: SocketServer) -> None:
    async with cartesia(server) as client:
        await client.say("A sentence. " * 400, "long")
        await client.say("Another one.", "short")
        await client.until("chunk", "long")
        await client.socket.send(json.dumps({"context_id": "long", "cancel": True}))
        await client.socket.send(json.dumps({"context_id": "unknown", "cancel": True}))
        await asyncio.sleep(0.2)
        await client.say("More. " * 20, "next")
        events = [await client.receive()]
        while (events[-1]["context_id"], events[-1]["type"]) != ("next", "done"):
            events.append(await client.receive())
    cancelled = [one for one in events if one["context_id"] == "long"]
    assert "done" not in kinds(cancelled) and seconds(cancelled) < 100
    books = await books_of(server)
    assert (await books.charged("tts"))[0] < 4000


async def test_failed_speech_ends_its_context_with_an_error_alone(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cartesia(server) as client:
        with monkeypatch.context() as patched:
            patched.setattr(
                "tests.engines.tone.ToneEngine.synthesize", lambda *_: (1 / 0 for _ in range(1))
            )
            await client.say("This fails. And this.", **MORE)
            error = await client.receive()
        assert (error["type"], error["status_code"], error["context_id"]) == ("error", 500, "c")
        assert "division" not in error["message"]
        await asyncio.sleep(0.1)  # the context ends after its error
        await client.say("This works.")
        events = await client.until("done")
    assert {one["type"] for one in events} == {"chunk", "done"} and seconds(events) > 0.4


async def books_of(server: SocketServer) -> Books:
    await server.until_empty()
    return await server.books()


async def test_contexts_speak_side_by_side_and_unused_ones_make_room(
    server: SocketServer,
) -> None:
    async with cartesia(server) as client:
        for number in range(7):  # of which the first two are forgotten
            await client.say("", f"idle {number}", **MORE)
        for number in range(5):
            await client.say("A sentence. " * 100, f"busy {number}")
        await client.say("One too many.", "more")
        while (event := await client.receive())["type"] != "error":
            pass
    assert (event["context_id"], event["status_code"]) == ("more", 400)
    assert "5 contexts" in event["message"]


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"voice": {"mode": "embedding", "embedding": [1.0]}}, 400, "voice"),
    ({"output_format": {"container": "wav"}}, 400, "raw"),
    ({"output_format": {**FORMAT, "sample_rate": 7}}, 400, "sample_rate"),
    ({"max_buffer_delay_ms": 9000}, 400, "max_buffer_delay_ms"),
    ({"context_id": "x" * 300}, 400, "context_id"),
    ({"transcript": 7}, 400, "transcript"),
    ({"transcript": "x" * 50_001}, 400, "limit"),
]


async def test_a_wrong_message_gets_an_error_of_its_context(
    server: SocketServer,
) -> None:
    async with cartesia(server) as client:
        for fields, status, named in WRONG:
            await client.say(**{"transcript": "Hello.", **fields})
            event = await client.receive()
            assert (event["type"], event["status_code"], event["done"]) == ("error", status, True)
            assert named in event["message"] and event["title"] and event["request_id"], event
            assert event["context_id"] == str(fields.get("context_id", "c"))[:256]
        await client.socket.send("{")
        assert (await client.receive())["error_code"] == "validation_error"
        await client.say("Hello.", None)
        while (event := await client.receive())["type"] != "done":
            assert event["context_id"]


async def test_a_closing_context_refuses_text_but_not_an_empty_one(
    server: SocketServer,
) -> None:
    async with cartesia(server) as client:
        await client.say("A sentence. " * 50)
        await client.say("")
        await client.say("And more.")
        events = await client.until("error")
        assert "closing" in events[-1]["message"]
        assert kinds(await client.until("done")) == ["done"]
