"""Deepgram's socket `/v2/listen`, with a scripted recogniser and turn detector."""

import asyncio
from typing import Any

import pytest

from api.deepgram import streams
from models.stt.base import Transcript, TranscriptionRequest
from tests.api.deepgram.socket_client import DeepgramClient, deepgram
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import (
    FakeTranscriber,
    ScriptedTurnDetector,
    loud,
    quiet,
    requested,
    transcript,
)

PATH = "/v2/listen"
FLUX = {"model": "flux-general-en", "encoding": "linear16", "sample_rate": 16_000}


def same(number: int, request: TranscriptionRequest) -> Transcript:
    return transcript(number, request, "Shall we go?")


async def events_of(client: DeepgramClient) -> list[dict[str, Any]]:
    """The events of a turn, while the microphone stays open."""
    return await client.until_in_silence("TurnInfo", event="EndOfTurn")


async def events_with_an_eager_end(client: DeepgramClient) -> list[dict[str, Any]]:
    """The same; a silence that goes on before the probable end is told may be its end at once."""
    eager = await client.until("TurnInfo", event="EagerEndOfTurn")
    return [*eager, *await events_of(client)]


async def test_a_complete_turn_begins_with_its_words_and_ends_soon(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = same
    async with deepgram(turn_server, PATH, **FLUX, eager_eot_threshold=0.5) as client:
        connected = await client.receive()
        await client.send_pcm(quiet(0.5), loud(1), quiet(0.2))
        events = await events_with_an_eager_end(client)
        await client.send_pcm(loud(1), quiet(0.2))
        second = await events_of(client)
        await client.send("CloseStream")
        rest, code, _ = await client.rest()
    assert (connected["type"], connected["sequence_id"]) == ("Connected", 0)
    names = [one["event"] for one in events]
    assert names[0] == "StartOfTurn" and names[-2:] == ["EagerEndOfTurn", "EndOfTurn"]
    eager, end = events[-2:]
    assert eager["transcript"] == end["transcript"] == "Shall we go?"
    assert [one["word"] for one in end["words"]] == ["Shall", "we", "go?"]
    assert 0 < end["words"][0]["confidence"] <= 1
    assert (end["turn_index"], end["trigger"], end["end_of_turn_confidence"]) == (0, "model", 1.0)
    assert end["audio_window_start"] == pytest.approx(0.2, abs=0.1)
    assert end["audio_window_end"] < 2.5
    assert "trigger" not in eager and "languages" not in eager
    assert [one["sequence_id"] for one in (connected, *events, *second)] == [
        *range(1 + len(events) + len(second))
    ]
    assert second[-1]["turn_index"] == 1 and second[0]["event"] == "StartOfTurn"
    assert (rest, code) == ([], 1000)


async def test_speech_that_goes_on_resumes_the_turn_that_probably_ended(
    turn_server: SocketServer, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> None:
    detector.answers = [0.4, 1.0]
    query = {"eager_eot_threshold": 0.3, "eot_threshold": 0.7}
    async with deepgram(turn_server, PATH, **FLUX, **query) as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(0.3))
        await client.until("TurnInfo", event="EagerEndOfTurn")
        await client.send_pcm(loud(1), quiet(0.2))
        events = await events_with_an_eager_end(client)
    names = [one["event"] for one in events if one["event"] != "Update"]
    assert names == ["TurnResumed", "EagerEndOfTurn", "EndOfTurn"]
    assert events[-1]["transcript"] == events[-2]["transcript"]


async def test_a_late_turn_has_its_own_start(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    async with deepgram(turn_server, PATH, **FLUX, eot_timeout_ms=500) as client:
        await client.receive()
        fake.gate.clear()
        await client.send_pcm(quiet(0.5), loud(1), quiet(2), loud(2))
        await client.send("ForceEndTurn")
        await requested(fake, 2)
        fake.gate.set()
        first = await client.until("TurnInfo", event="EndOfTurn")
        second = await client.until("TurnInfo", event="EndOfTurn")
    for events, start_s in ((first, 0.2), (second, 3.2)):
        for one in events:
            assert one["audio_window_start"] == pytest.approx(start_s, abs=0.05)


async def test_without_an_eager_threshold_no_probable_end_is_told(
    turn_server: SocketServer,
) -> None:
    async with deepgram(turn_server, PATH, **FLUX) as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(0.2))
        names = [one["event"] for one in await events_of(client)]
    assert "EagerEndOfTurn" not in names and names[0] == "StartOfTurn"


async def test_an_incomplete_turn_ends_after_its_timeout(
    turn_server: SocketServer, detector: ScriptedTurnDetector
) -> None:
    detector.answers = [0.0]
    query = {"eot_threshold": 1.0, "eot_timeout_ms": 1500}
    async with deepgram(turn_server, PATH, **FLUX, **query) as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(1.2))
        await client.send_pcm(quiet(1))
        end = (await events_of(client))[-1]
    assert end["trigger"] == "timeout" and end["audio_window_end"] >= 2.4
    assert end["end_of_turn_confidence"] == 0.0


@pytest.mark.parametrize("completeness", [0.0, 0.02, 0.4, 0.69])
async def test_silence_ends_a_turn_within_a_second_however_unfinished_it_sounds(
    turn_server: SocketServer, detector: ScriptedTurnDetector, completeness: float
) -> None:
    detector.answers = [completeness]
    async with deepgram(turn_server, PATH, **FLUX) as client:
        await client.receive()
        await client.send_pcm(loud(1), *[quiet(0.1)] * 10)
        end = (await client.until("TurnInfo", event="EndOfTurn"))[-1]
    assert (end["trigger"], end["end_of_turn_confidence"]) == ("model", 0.7)


async def test_a_short_time_out_ends_turns_before_the_silence_is_convincing(
    turn_server: SocketServer, detector: ScriptedTurnDetector
) -> None:
    detector.answers = [0.0]
    async with deepgram(turn_server, PATH, **FLUX, eot_timeout_ms=500) as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(0.6))
        end = (await client.until("TurnInfo", event="EndOfTurn"))[-1]
    assert (end["trigger"], end["end_of_turn_confidence"]) == ("timeout", 0.0)


async def test_the_client_may_end_turns_alone(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = same
    async with deepgram(turn_server, PATH, **FLUX, eot_threshold=1.0) as client:
        await client.receive()
        await client.send("ForceEndTurn")  # of nothing
        await client.send_pcm(loud(1), quiet(2))
        await client.send("ForceEndTurn")
        end = (await events_of(client))[-1]
        await client.send("CloseStream")
        rest, _, _ = await client.rest()
    assert (end["trigger"], end["turn_index"]) == ("manual", 0)
    assert end["transcript"] == "Shall we go?" and rest == []


async def test_a_sound_without_words_is_no_turn(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = lambda number, request: Transcript("en", 0.9)
    async with deepgram(turn_server, PATH, **FLUX) as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(1))
        await client.send("CloseStream")
        assert (await client.rest())[0] == []


async def test_configure_changes_the_turns_that_follow_and_a_wrong_one_nothing(
    turn_server: SocketServer, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> None:
    detector.answers = [0.6]
    multi = {**FLUX, "model": "flux-general-multi"}
    async with deepgram(turn_server, PATH, **multi) as client:
        await client.receive()
        await client.send("Unknown")
        assert (await client.receive())["code"] == "UNPARSABLE_CLIENT_MESSAGE"
        thresholds = {"eot_threshold": 0.5, "eager_eot_threshold": 0.4, "eot_timeout_ms": 3000}
        await client.send(
            "Configure", thresholds=thresholds, keyterms=["Kokoro"], language_hints=["de"]
        )
        (changed,) = await client.until("ConfigureSuccess")
        for wrong in (
            {"thresholds": {"eot_threshold": 5}},
            {"thresholds": {"eager_eot_threshold": 0.9}},
            {"language_hints": ["tlh"]},
            {"keyterms": ["x" * 101]},
        ):
            await client.send("Configure", **wrong)
            (failure,) = await client.until("ConfigureFailure")
            assert failure["error_code"] and failure["description"]
        await client.send_pcm(loud(1), quiet(0.2))
        events = await events_with_an_eager_end(client)
    assert changed["thresholds"] == thresholds and changed["keyterms"] == ["Kokoro"]
    assert fake.requests[-1].options.keyterms == ("Kokoro",)
    assert fake.requests[-1].language == "de"
    assert events[-1]["languages"] == ["de"] and events[-1]["languages_hinted"] == ["de"]
    assert "EagerEndOfTurn" in [one["event"] for one in events]


async def test_a_muted_stream_outlasts_the_pings_of_its_clients(
    turn_server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, message, code = streams.FluxConversation.silence
    scaled_s = seconds / 100
    monkeypatch.setattr(streams.FluxConversation, "silence", (scaled_s, message, code))
    async with deepgram(turn_server, PATH, **FLUX) as client:
        await client.receive()
        for _ in range(3):  # LiveKit pings every 30 s, the official client every 20 s
            await asyncio.sleep(0.3)
            await (await client.socket.ping())  # raises after the end
        (error,), closed, reason = await client.rest()
    assert (error["code"], closed, reason) == ("NET-0001", 1011, message)
