"""What a client sees of whole turns: every event in its order, with its ids and states."""

import json
from collections.abc import Iterable
from typing import Any

from tests.api.openai.realtime.client import Event
from tests.api.openai.realtime.test_conversation import LONG, says, session
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

# Left out, since their number and place depend on the time that work takes.
TIMED = (
    "conversation.item.input_audio_transcription.delta",
    "response.output_audio_transcript.delta",
)
FIELDS = ("response_id", "output_index", "item_id", "content_index", "call_id")
TOOL = {
    "type": "function",
    "name": "clock",
    "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}},
}


def summaries(events: Iterable[Event]) -> list[str]:
    """A line an event: its type and ids, with ids by the order in which they appear, and deltas of
    one kind in one response only once."""
    names: dict[str, str] = {}
    deltas: set[tuple[str, str]] = set()
    lines: list[str] = []

    def name(prefix: str, value: str | None) -> str:
        if value is None:
            return "-"
        return names.setdefault(value, f"{prefix}{sum(n[0] == prefix for n in names.values()) + 1}")

    for event in events:
        kind = event["type"]
        delta = kind, str(event.get("response_id"))
        if kind in TIMED or (kind.endswith(".delta") and delta in deltas):
            continue
        deltas.add(delta)
        words = [kind]
        for field in FIELDS:
            if field in event:
                value = event[field]
                words.append(str(value) if isinstance(value, int) else name(field[0], value))
        if "previous_item_id" in event:
            words.append(f"after {name('i', event['previous_item_id'])}")
        for part in ("response", "item"):
            if part in event:
                shown = event[part]
                words += [name(part[0], shown["id"]), shown["status"]]
        if "item" in event and "content" in event["item"]:
            words.append(json.dumps([[*part.values()] for part in event["item"]["content"]]))
        if "error" in event:
            words += [str(event["error"].get(field)) for field in ("code", "param", "event_id")]
        lines.append(" ".join(words))
    return lines


def user(text: str, **item: Any) -> dict[str, Any]:
    part = {"type": "input_text", "text": text}
    return {"type": "message", "role": "user", "content": [part], **item}


async def test_a_text_turn(server: SocketServer) -> None:
    async with session(server) as client:
        await client.update(output_modalities=["text"])
        client.events.clear()
        await client.say("One two.")
        assert summaries(client.events) == [
            'conversation.item.added after - i1 completed [["input_text", "One two."]]',
            'conversation.item.done after - i1 completed [["input_text", "One two."]]',
            "response.created r1 in_progress",
            "rate_limits.updated",
            "response.output_item.added r1 0 i2 in_progress []",
            "conversation.item.added after i1 i2 in_progress []",
            "response.content_part.added r1 0 i2 0",
            "response.output_text.delta r1 0 i2 0",
            "response.output_text.done r1 0 i2 0",
            "response.content_part.done r1 0 i2 0",
            'response.output_item.done r1 0 i2 completed [["output_text", "One two."]]',
            'conversation.item.done after i1 i2 completed [["output_text", "One two."]]',
            "response.done r1 completed",
        ]


async def test_an_audio_turn(server: SocketServer, heard: FakeTranscriber) -> None:
    heard.answer = says("What time is it?")
    async with session(server) as client:
        await client.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
        client.events.clear()
        await client.speak(quiet(0.5))
        await client.utter(1.0, 0.8)
        await client.until("response.done")
        assert 0 <= client.events[0]["audio_start_ms"] < 500
        assert summaries(client.events) == [
            "input_audio_buffer.speech_started i1",
            "input_audio_buffer.speech_stopped i1",
            "input_audio_buffer.committed i1 after -",
            'conversation.item.added after - i1 completed [["input_audio", null]]',
            'conversation.item.done after - i1 completed [["input_audio", null]]',
            "conversation.item.input_audio_transcription.completed i1 0",
            "response.created r1 in_progress",
            "rate_limits.updated",
            "response.output_item.added r1 0 i2 in_progress []",
            "conversation.item.added after i1 i2 in_progress []",
            "response.content_part.added r1 0 i2 0",
            "response.output_audio.delta r1 0 i2 0",
            "response.output_audio.done r1 0 i2 0",
            "response.output_audio_transcript.done r1 0 i2 0",
            "response.content_part.done r1 0 i2 0",
            'response.output_item.done r1 0 i2 completed [["output_audio", "What time is it?"]]',
            'conversation.item.done after i1 i2 completed [["output_audio", "What time is it?"]]',
            "response.done r1 completed",
        ]


async def test_an_interruption_that_truncates_the_answer(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says("Wait, stop please.")
    async with session(server) as client:
        await client.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
        client.events.clear()
        await client.begin(LONG)
        await client.until("response.output_audio.delta")
        await client.speak(loud(0.8))
        cancelled = (await client.until("response.done"))["response"]
        item_id = cancelled["output"][0]["id"]
        truncation = {"item_id": item_id, "content_index": 0, "audio_end_ms": 0}
        await client.send("conversation.item.truncate", **truncation)
        await client.until("conversation.item.truncated")
        await client.speak(quiet(0.8))
        await client.until("response.done")
        assert cancelled["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        lines = [line.partition(" [")[0] for line in summaries(client.events)]
        assert lines == [
            "conversation.item.added after - i1 completed",
            "conversation.item.done after - i1 completed",
            "response.created r1 in_progress",
            "rate_limits.updated",
            "response.output_item.added r1 0 i2 in_progress",
            "conversation.item.added after i1 i2 in_progress",
            "response.content_part.added r1 0 i2 0",
            "response.output_audio.delta r1 0 i2 0",
            "input_audio_buffer.speech_started i3",
            "response.output_audio.done r1 0 i2 0",
            "response.output_audio_transcript.done r1 0 i2 0",
            "response.content_part.done r1 0 i2 0",
            "response.output_item.done r1 0 i2 incomplete",
            "conversation.item.done after i1 i2 incomplete",
            "response.done r1 cancelled",
            "conversation.item.truncated i2 0",
            "input_audio_buffer.speech_stopped i3",
            "input_audio_buffer.committed i3 after i2",
            "conversation.item.added after i2 i3 completed",
            "conversation.item.done after i2 i3 completed",
            "conversation.item.input_audio_transcription.completed i3 0",
            "response.created r2 in_progress",
            "rate_limits.updated",
            "response.output_item.added r2 0 i4 in_progress",
            "conversation.item.added after i3 i4 in_progress",
            "response.content_part.added r2 0 i4 0",
            "response.output_audio.delta r2 0 i4 0",
            "response.output_audio.done r2 0 i4 0",
            "response.output_audio_transcript.done r2 0 i4 0",
            "response.content_part.done r2 0 i4 0",
            "response.output_item.done r2 0 i4 completed",
            "conversation.item.done after i3 i4 completed",
            "response.done r2 completed",
        ]


async def test_a_function_call_and_its_output(server: SocketServer) -> None:
    call = '<tool_call>{"name": "clock", "arguments": {"zone": "UTC"}}</tool_call>'
    async with session(server) as client:
        await client.update(tools=[TOOL], output_modalities=["text"])
        client.events.clear()
        response = await client.say(call)
        output = {"type": "function_call_output", "output": "Noon."}
        (called,) = response["output"]
        assert (called["name"], json.loads(called["arguments"])) == ("clock", {"zone": "UTC"})
        output["call_id"] = called["call_id"]
        await client.send("conversation.item.create", item=output)
        await client.respond()
        assert summaries(client.events)[2:] == [
            "response.created r1 in_progress",
            "rate_limits.updated",
            "response.output_item.added r1 0 i2 in_progress",
            "conversation.item.added after i1 i2 in_progress",
            "response.function_call_arguments.delta r1 0 i2 c1",
            "response.function_call_arguments.done r1 0 i2 c1",
            "response.output_item.done r1 0 i2 completed",
            "conversation.item.done after i1 i2 completed",
            "response.done r1 completed",
            "conversation.item.added after i2 i3 completed",
            "conversation.item.done after i2 i3 completed",
            "response.created r2 in_progress",
            "rate_limits.updated",
            "response.output_item.added r2 0 i4 in_progress []",
            "conversation.item.added after i3 i4 in_progress []",
            "response.content_part.added r2 0 i4 0",
            "response.output_text.delta r2 0 i4 0",
            "response.output_text.done r2 0 i4 0",
            "response.content_part.done r2 0 i4 0",
            'response.output_item.done r2 0 i4 completed [["output_text", "Noon."]]',
            'conversation.item.done after i3 i4 completed [["output_text", "Noon."]]',
            "response.done r2 completed",
        ]


async def test_an_update_and_a_cancellation_during_a_response(server: SocketServer) -> None:
    async with session(server) as client:
        client.events.clear()
        await client.begin(LONG)
        await client.until("response.output_audio.delta")
        updated = await client.update(instructions="Be brief.")
        assert updated["instructions"] == "Be brief."
        voice = {"audio": {"output": {"voice": "marin"}}}
        error = await client.error("session.update", session=voice, event_id="late")
        assert error["code"] == "cannot_update_voice"
        await client.error("response.create", event_id="second")
        await client.send("response.cancel")
        response = (await client.until("response.done"))["response"]
        assert response["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert response["usage"]["output_tokens"] > 0
        await client.error("response.cancel", event_id="third")
        lines = [line.partition(" [")[0] for line in summaries(client.events)]
        assert lines == [
            "conversation.item.added after - i1 completed",
            "conversation.item.done after - i1 completed",
            "response.created r1 in_progress",
            "rate_limits.updated",
            "response.output_item.added r1 0 i2 in_progress",
            "conversation.item.added after i1 i2 in_progress",
            "response.content_part.added r1 0 i2 0",
            "response.output_audio.delta r1 0 i2 0",
            "session.updated",
            "error cannot_update_voice session.audio.output.voice late",
            "error conversation_already_has_active_response None second",
            "response.output_audio.done r1 0 i2 0",
            "response.output_audio_transcript.done r1 0 i2 0",
            "response.content_part.done r1 0 i2 0",
            "response.output_item.done r1 0 i2 incomplete",
            "conversation.item.done after i1 i2 incomplete",
            "response.done r1 cancelled",
            "error response_cancel_not_active response_id third",
        ]


async def test_items_and_their_errors(server: SocketServer) -> None:
    async with session(server) as client:
        client.events.clear()
        wrong = {**user("a"), "content": [{"type": "input_text"}]}
        await client.error("conversation.item.create", item=wrong, event_id="a")
        for item, after in ((user("b", id="b"), None), (user("c", id="c"), "root")):
            await client.send("conversation.item.create", item=item, previous_item_id=after)
            await client.until("conversation.item.done")
        await client.error("conversation.item.create", item=user("d", id="b"), event_id="d")
        create = {"item": user("e"), "previous_item_id": "none"}
        await client.error("conversation.item.create", **create, event_id="e")
        truncation = {"content_index": 0, "audio_end_ms": 1}
        await client.error("conversation.item.truncate", item_id="b", **truncation, event_id="f")
        await client.error("conversation.item.truncate", item_id="x", **truncation, event_id="g")
        await client.send("conversation.item.delete", item_id="b")
        await client.until("conversation.item.deleted")
        await client.error("conversation.item.delete", item_id="b", event_id="h")
        await client.error("conversation.item.retrieve", item_id="b", event_id="i")
        await client.error("input_audio_buffer.commit", event_id="j")
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")
        assert summaries(client.events) == [
            "error missing_required_parameter item.content[0].text a",
            'conversation.item.added after - i1 completed [["input_text", "b"]]',
            'conversation.item.done after - i1 completed [["input_text", "b"]]',
            'conversation.item.added after - i2 completed [["input_text", "c"]]',
            'conversation.item.done after - i2 completed [["input_text", "c"]]',
            "error invalid_value item.id d",
            "error invalid_value previous_item_id e",
            "error invalid_value item_id f",
            "error item_truncate_invalid_item_id item_id g",
            "conversation.item.deleted i1",
            "error item_delete_invalid_item_id item_id h",
            "error item_retrieve_invalid_item_id item_id i",
            "error input_audio_buffer_commit_empty None j",
            "input_audio_buffer.cleared",
        ]
