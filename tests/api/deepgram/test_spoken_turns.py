"""Deepgram's socket of speech in turns, `/v2/speak`, over the tone engine."""

from typing import Any
from unittest.mock import Mock

import pytest

from api.deepgram.spoken_turns import SpokenTurn, SpokenTurnsConversation, TurnWire
from pipelines.tts.session import BUFFER_CHARACTERS
from tests.api.deepgram.socket_client import DeepgramClient, deepgram
from tests.api.sockets.conftest import SocketServer

PATH = "/v2/speak"
RAW = {"encoding": "linear16", "sample_rate": 16_000, "model": "flux-alexis-en"}
CHARACTER_S = 0.06  # of the tone engine


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events if event["type"] != "audio"]


def milliseconds(events: list[dict[str, Any]]) -> int:
    return sum(len(event["audio"]) for event in events if event["type"] == "audio") // 32


async def greeted(client: DeepgramClient) -> None:
    connected = await client.receive()
    assert connected["type"] == "Connected" and len(connected["model_uuids"]) == 1


async def test_turns_are_spoken_one_after_another_and_counted(server: SocketServer) -> None:
    async with deepgram(server, PATH, **RAW) as client:
        await greeted(client)
        for text in ("Shall we go ", "home?"):
            await client.send("Speak", text=text)
        await client.send("Flush")
        await client.send("Speak", text="A second turn.")
        await client.send("Configure", speed=1.5)
        await client.send("Configure", speed=2)
        await client.send("Close")
        events, code, _ = await client.rest()
    assert code == 1000
    ids = [event["speech_id"] for event in events if event["type"] == "SpeechStarted"]
    ends = [number for number, event in enumerate(events) if event["type"] == "SpeechMetadata"]
    starts = [number for number, event in enumerate(events) if event["type"] == "SpeechStarted"]
    assert len(set(ids)) == 2 and starts[0] < ends[0] < starts[1] < ends[1]
    for start, end, text in zip(starts, ends, ("Shall we go home?", "A second turn."), strict=True):
        metadata = events[end]
        assert metadata["audio_duration_ms"] == milliseconds(events[start:end]) > 300
        assert (
            metadata["billable_character_count"] == metadata["input_character_count"] == len(text)
        )
    (flushed,) = (event for event in events if event["type"] == "Flushed")
    assert flushed["speech_id"] == ids[0]
    (failed,) = (event for event in events if event["type"] == "ConfigureFailure")
    assert (failed["code"], failed["value"]) == ("SPEED_OUT_OF_RANGE", 2)
    assert kinds(events)[-1] == "SessionMetadata"
    assert events[-1]["total_audio_duration_ms"] == milliseconds(events)
    assert events[-1]["total_billable_character_count"] == len("Shall we go home?A second turn.")


async def test_an_interrupt_tells_what_was_heard_and_the_next_turn_is_spoken(
    server: SocketServer,
) -> None:
    text = "One two three four. " * 200
    async with deepgram(server, PATH, **RAW) as client:
        await greeted(client)
        await client.send("Interrupt")
        assert (await client.receive())["code"] == "NO_ACTIVE_SPEECH"
        await client.send("Speak", text=text)
        events = [await client.receive()]
        while milliseconds(events) < 2000:
            events.append(await client.receive())
        offset = {"type": "time_ms", "value": 1000}
        await client.send("Interrupt", playback_offset=offset)
        interrupted = (await client.until("SpeechInterrupted"))[-1]
        await client.send("Configure", speed=1.2)
        assert (await client.receive())["applied"] == {"speed": 1.2}
        await client.send("Flush")
        assert (await client.receive())["code"] == "NO_ACTIVE_SPEECH"
        await client.send("Speak", text="Next. ")
        await client.until("SpeechStarted")
        await client.send("Interrupt", playback_offset=offset)
        assert (await client.until("Warning"))[-1]["code"] == "INVALID_INTERRUPT_OFFSET"
        await client.send("Flush")
        metadata = (await client.until("SpeechMetadata"))[-1]
    assert interrupted["audio_played_ms"] == 1000
    spoken = interrupted["text_spoken"]
    assert spoken + interrupted["text_remaining"] == text
    assert len(spoken) == pytest.approx(1 / CHARACTER_S, abs=6)
    counted = interrupted["metadata"]
    assert len(spoken) < counted["billable_character_count"] < counted["input_character_count"]
    assert metadata["input_character_count"] == len("Next. ")


async def test_wrong_messages_get_errors_and_unspeakable_turns_a_warning(
    server: SocketServer,
) -> None:
    async with deepgram(server, PATH, **RAW) as client:
        await greeted(client)
        for fields in ({"text": 1}, {}, {"text": "a", "playback_offset": {"value": -1}}):
            await client.send("Speak", **fields)
            error = await client.receive()
            assert (error["type"], error["code"]) == ("Error", "MESSAGE-0000")
        await client.send("Speak", text=" … ")
        await client.send("Flush")
        events = await client.until("SpeechMetadata")
        assert kinds(events) == ["SpeechStarted", "Flushed", "Warning", "SpeechMetadata"]
        assert events[-1]["audio_duration_ms"] == events[-1]["billable_character_count"] == 0
        for _ in range(6):
            await client.send("Speak", text="A turn that waits. " * 20)
            await client.send("Flush")
        assert (await client.until("Warning"))[-1]["code"] == "TEXT_REFUSED"


async def test_a_turn_has_a_bound_for_its_text_reasoning_included(server: SocketServer) -> None:
    half = "<think>" + "x" * (BUFFER_CHARACTERS // 2 - len("<think>"))
    async with deepgram(server, PATH, **RAW) as client:
        await greeted(client)
        await client.send("Speak", text=half + half + ".")
        assert (await client.receive())["code"] == "TEXT_REFUSED"
        for text in (half, half, ""):
            await client.send("Speak", text=text)
        await client.send("Speak", text=".")
        assert (await client.until("Warning"))[-1]["code"] == "TEXT_REFUSED"
        await client.send("Flush")
        metadata = (await client.until("SpeechMetadata"))[-1]
        assert metadata["input_character_count"] == BUFFER_CHARACTERS
        assert metadata["audio_duration_ms"] == 0
        await client.send("Speak", text="Next. ")
        await client.until("audio")


async def test_an_offset_beyond_the_audio_is_its_end(server: SocketServer) -> None:
    beyond = {"type": "time_ms", "value": 10**9}
    async with deepgram(server, PATH, **RAW) as client:
        await greeted(client)
        for text in ("One two three four. " * 200, "Another turn. " * 200):
            await client.send("Speak", text=text)
            await client.send("Flush")
        events = await client.until("audio")
        for _ in range(2):  # the second turn may not have begun
            await client.send("Interrupt", playback_offset=beyond)
            events += await client.until("SpeechInterrupted")
        await client.send("Speak", text="Next. ")
        events += await client.until("audio")
        await client.send("Close")
        rest, _, _ = await client.rest()
    first, second = (event for event in events if event["type"] == "SpeechInterrupted")
    assert 0 < first["audio_played_ms"] <= second["audio_played_ms"]
    total = sum(event["metadata"]["audio_duration_ms"] for event in (first, second))
    assert second["audio_played_ms"] <= total
    last = next(event for event in rest if event["type"] == "SpeechMetadata")
    ended = second["audio_played_ms"] + last["audio_duration_ms"]
    assert rest[-1]["total_audio_duration_ms"] == ended


def test_an_interrupt_of_a_waiting_turn_counts_from_its_start() -> None:
    session = Mock(query=RAW, spawn=lambda work, name: work.close())
    conversation = SpokenTurnsConversation(session, Mock())
    turns = [SpokenTurn(Mock(), TurnWire(Mock(spoken_s=seconds), 0)) for seconds in (2.0, 0.0)]
    conversation._turns.extend(turns)
    conversation.flushes["1"] = Mock()
    conversation.on_closed("1")
    assert conversation._interrupt(None) is None
    assert turns[1].wire.played_ms == 2000
