"""Events of the client in any order, right and wrong ones: no session breaks, and each answer is
one that OpenAI's own client knows."""

import asyncio
import json
import random
from collections import Counter
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeServerEvent

from api.services import Services
from api.sockets.kernel import session as kernel_session
from tests.api.replaced import with_listening
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer, serve
from tests.api.sockets.test_sessions import limit
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber

EVENTS, SESSION_EVENTS = 5000, 250
END = "end"  # the event id of the last event of a session
UNION = get_args(get_args(RealtimeServerEvent)[0])
KNOWN = {get_args(one.model_fields["type"].annotation)[0]: one for one in UNION}
IDS = [f"item_{number}" for number in range(6)]
HOSTILE: list[Any] = [
    None, True, -1, 2**64, 1e308, "", "\0", "\ud7ff\U0001f600", "x" * 5000, [], {}, [[]],
    {"type": None}, "root", "../..", "audio/pcm", [None], {"": {}}, "AAAA", "%",
]  # fmt: skip


def right_event(rng: random.Random) -> dict[str, Any]:
    """An event of a client, which may still come at the wrong time."""
    role = rng.choice(["user", "assistant", "system"])
    kind = "output_text" if role == "assistant" else "input_text"
    audio = {"type": "input_audio", "audio": "AAAA" * 400}
    part = audio if role == "user" and rng.random() < 0.3 else {"type": kind, "text": "One two."}
    items: list[dict[str, Any]] = [
        {"type": "message", "role": role, "content": [part]},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "2"},
    ]
    item = {"id": rng.choice([*IDS, None]), **rng.choice(items)}
    detection = [None, {"type": "server_vad"}, {"type": "semantic_vad", "eagerness": "low"}]
    tool = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    session = {
        "type": "realtime",
        "output_modalities": [rng.choice(["audio", "text"])],
        "tools": [tool] * rng.randrange(2),
        "audio": {
            "input": {
                "format": {"type": rng.choice(["audio/pcm", "audio/pcmu"])},
                "turn_detection": rng.choice(detection),
                "transcription": rng.choice([None, {"model": "whisper-1"}]),
            }
        },
    }
    options = {
        "conversation": rng.choice(["auto", "none"]),
        "output_modalities": [rng.choice(["audio", "text"])],
        "metadata": {"a": "b"},
    }
    event_id = {"event_id": "mine"}
    events: list[dict[str, Any]] = [
        {"type": "session.update", "session": session},
        {"type": "input_audio_buffer.append", "audio": rng.choice(["AAAA", "f39/"]) * 1200},
        {"type": "input_audio_buffer.commit"},
        {"type": "input_audio_buffer.clear"},
        {"type": "output_audio_buffer.clear"},
        {"type": "conversation.item.create", "item": item, "previous_item_id": rng.choice(IDS)},
        {"type": "conversation.item.create", "item": item},
        {"type": "conversation.item.retrieve", "item_id": rng.choice(IDS)},
        {"type": "conversation.item.delete", "item_id": rng.choice(IDS)},
        {
            "type": "conversation.item.truncate",
            "item_id": rng.choice(IDS),
            "content_index": 0,
            "audio_end_ms": 100,
        },
        {"type": "response.create", "response": options},
        {"type": "response.create"},
        {"type": "response.cancel"},
    ]
    return {**rng.choice(events), **(event_id if rng.random() < 0.5 else {})}


def spoilt(value: Any, rng: random.Random) -> Any:
    """The same with one thing in it replaced or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: spoilt(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        return [spoilt(value[0], rng), *value[1:]]
    return rng.choice(HOSTILE)


async def read(socket: Any, seen: Counter[str]) -> None:
    """Reads to the answer of the last event; each must be one of OpenAI's types."""
    async for frame in socket:
        event = json.loads(frame)
        KNOWN[event["type"]].model_validate(event)
        seen[event["type"]] += 1
        if event["type"] != "error":
            continue
        assert event["error"]["type"] != "server_error", event
        if event["error"]["event_id"] == END:
            return
    pytest.fail(f"the session ended with {socket.close_code}")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_5000_events_in_any_order_break_no_session(
    plain: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_session, "MAX_FAULT_PAUSE_S", 0.0)  # after wrong messages
    rng = random.Random(5)
    sent, seen = 0, Counter[str]()
    last = {"type": "conversation.item.retrieve", "item_id": "none", "event_id": END}
    async with serve(with_listening(plain, FakeTranscriber())) as server:
        limit(server, monkeypatch, faults=EVENTS, messages_per_s=EVENTS)
        while sent < EVENTS:
            query = "intent=transcription" if rng.random() < 0.15 else "model=gpt-realtime"
            async with open_socket(server, query) as socket:
                reading = asyncio.create_task(read(socket, seen))
                share = rng.choice([0.05, 0.5])  # of wrong events
                for _ in range(SESSION_EVENTS):
                    event: Any = right_event(rng)
                    if rng.random() < share:
                        event = spoilt(event, rng)
                    await socket.send(json.dumps(event))
                    sent += 1
                await socket.send(json.dumps(last))
                async with asyncio.timeout(PATIENCE_S):
                    await reading  # raises ConnectionClosed where the server ended the session
    assert {"session.updated", "response.done", "conversation.item.added", "error"} <= set(seen)


def open_socket(server: SocketServer, query: str) -> Any:
    url = f"ws://{server.address}/openai/v1/realtime?{query}"
    return connect(url, additional_headers={"Authorization": f"Bearer {server.key}"})
