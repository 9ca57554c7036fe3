"""AssemblyAI's socket `/v3/ws`, with a scripted recogniser and turn detector."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from api.assemblyai.streams import TurnsQuery
from models.errors import EngineLost
from models.stt.base import Transcript, TranscriptionRequest
from pipelines.stt.endpointing import SemanticTurns
from tests.api.deepgram.socket_client import DeepgramClient
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import (
    FakeTranscriber,
    ScriptedTurnDetector,
    loud,
    quiet,
    requested,
    tone,
    transcript,
)

STREAM = {"sample_rate": 16_000, "speech_model": "universal-streaming-english"}
PRO = {"sample_rate": 16_000, "speech_model": "universal-3-6-pro"}


@asynccontextmanager
async def assembly(server: SocketServer, **query: Any) -> AsyncIterator[DeepgramClient]:
    """A client that authenticates as AssemblyAI's do: with the key alone."""
    given = {name: json.dumps(one) if isinstance(one, list) else one for name, one in query.items()}
    url = f"ws://{server.address}/v3/ws?{urlencode(given)}"
    async with connect(url, additional_headers={"Authorization": server.key}) as socket:
        yield DeepgramClient(socket)


def said(number: int, request: TranscriptionRequest) -> Transcript:
    return transcript(number, request, "Shall we go?")


async def turn_of(client: DeepgramClient) -> list[dict[str, Any]]:
    """The events of a turn, while the microphone stays open."""
    return await client.until_in_silence("Turn", end_of_turn=True)


async def test_a_turn_grows_to_its_end_and_the_session_to_its_termination(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = said
    async with assembly(turn_server, **PRO, min_turn_silence=600) as client:
        begin = await client.receive()
        await client.send_pcm(quiet(0.5), loud(1), quiet(0.2))
        started, *partials, eager = await client.until("Turn", utterance="Shall we go?")
        end = (await turn_of(client))[-1]
        await client.send_pcm(loud(1), quiet(0.1))
        await client.send("Terminate")
        rest, code, _ = await client.rest()
    assert begin["type"] == "Begin" and begin["id"] and begin["expires_at"] > 1_700_000_000
    assert begin["configuration"] == {"model": "svc/fake"}
    assert started == {"type": "SpeechStarted", "timestamp": pytest.approx(500, abs=50)}
    assert [one["type"] for one in partials] == ["Turn"] * len(partials)
    for one in (*partials, eager):
        assert [word["text"] for word in one["words"]] == ["Shall", "we", "go?"]
        assert not (one["end_of_turn"] or one["turn_is_formatted"])
        assert not any(word["word_is_final"] for word in one["words"])
        assert 450 < one["words"][0]["start"] < one["words"][-1]["end"] < 1700
    assert eager["end_of_turn_confidence"] == 1.0
    assert end["transcript"] == "Shall we go?" and end["turn_is_formatted"]
    assert (end["turn_order"], end["language_code"], end["language_confidence"]) == (0, "en", 0.9)
    assert (end["end_of_turn_confidence"], end["utterance"]) == (1.0, "")
    assert "speaker_label" not in end and all(word["word_is_final"] for word in end["words"])
    *last, termination = rest
    assert last[-1]["turn_order"] == 1 and last[-1]["end_of_turn"]
    assert termination["type"] == "Termination" and code == 1000
    assert isinstance(termination["audio_duration_seconds"], int)
    assert isinstance(termination["session_duration_seconds"], int)


async def test_a_late_turn_has_its_own_start(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = said
    async with assembly(turn_server, **PRO) as client:
        await client.receive()
        fake.gate.clear()
        await client.send_pcm(quiet(0.5), loud(1), quiet(2), loud(2))
        await client.send("ForceEndpoint")
        await requested(fake, 2)
        fake.gate.set()
        first = await client.until("Turn", end_of_turn=True)
        second = await client.until("Turn", end_of_turn=True)
    for events, start_ms in ((first, 500), (second, 3500)):
        assert events[0] == {"type": "SpeechStarted", "timestamp": pytest.approx(start_ms, abs=50)}
        assert events[-1]["words"][0]["start"] == pytest.approx(start_ms, abs=100)


async def test_turns_are_unformatted_unless_asked_for_and_partials_may_be_left_out(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = said
    async with assembly(turn_server, **STREAM, include_partial_turns="false") as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(0.2))
        started, plain = await turn_of(client)
        await client.send("UpdateConfiguration", format_turns=True)
        await client.send_pcm(loud(1), quiet(0.2))
        _, formatted = await turn_of(client)
    assert started["type"] == "SpeechStarted"
    assert (plain["transcript"], plain["turn_is_formatted"]) == ("shall we go", False)
    assert (formatted["transcript"], formatted["turn_is_formatted"]) == ("Shall we go?", True)
    assert {one.language for one in fake.requests} == {"en"}


@pytest.mark.parametrize(
    ("query", "least_ms", "most_ms"),
    [
        ({}, 400, 1280),
        ({"speech_model": "u3-rt-pro"}, 100, 1000),
        ({"min_end_of_turn_silence_when_confident": 160}, 160, 1280),
        ({"min_turn_silence": 2000}, 2000, 2000),
        ({"min_turn_silence": 0, "max_turn_silence": 0}, 100, 100),
    ],
)
def test_the_silence_that_ends_a_turn_depends_on_query_and_model(
    query: dict[str, Any], least_ms: int, most_ms: int
) -> None:
    turns = TurnsQuery.model_validate({"sample_rate": 16_000, **query}).options.turns
    assert turns == SemanticTurns(most_ms, 0.4, least_ms)


async def test_equal_silences_end_each_pause_at_once(
    turn_server: SocketServer, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> None:
    """As the plugins want it that judge turns by themselves."""
    fake.answer, detector.answers = said, [0.0]
    async with assembly(turn_server, **PRO, min_turn_silence=100, max_turn_silence=100) as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(0.2))
        assert (await client.until("Turn", end_of_turn=True))[-1]["transcript"] == "Shall we go?"


async def test_the_client_may_end_a_turn_and_change_its_terms_and_languages(
    turn_server: SocketServer, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> None:
    fake.answer, detector.answers = said, [0.0]
    query = {"keyterms_prompt": ["Kokoro", "Antiphon"], "max_turn_silence": 60_000}
    async with assembly(turn_server, **PRO, **query) as client:
        await client.receive()
        await client.send("KeepAlive")
        await client.send("ForceEndpoint")  # of nothing
        await client.send_pcm(loud(1), quiet(1))
        await client.send("ForceEndpoint")
        first = (await client.until("Turn", end_of_turn=True))[-1]
        assert {one.options.keyterms for one in fake.requests} == {("Kokoro", "Antiphon")}
        assert fake.requests[0].language is None  # any
        changes = {"keyterms_prompt": ["Wyoming"], "language_codes": ["de"], "prompt": "Verbatim"}
        await client.send("UpdateConfiguration", **changes, sample_rate=8000)
        await client.send_pcm(loud(1), quiet(1))
        await client.send("ForceEndpoint")
        second = (await client.until("Turn", end_of_turn=True))[-1]
    assert (first["turn_order"], second["turn_order"]) == (0, 1)
    assert first["transcript"] == second["transcript"] == "Shall we go?"
    assert fake.requests[-1].options.keyterms == ("Wyoming",)
    assert (fake.requests[-1].language, second["language_code"]) == ("de", "de")


async def test_speakers_have_letters(turn_server: SocketServer, fake: FakeTranscriber) -> None:
    fake.answer = said
    async with assembly(turn_server, **PRO, speaker_labels="true") as client:
        await client.receive()
        await client.send_pcm(tone(200, 2), quiet(0.2))
        assert (await turn_of(client))[-1]["speaker_label"] == "A"
        await client.send("UpdateConfiguration", min_turn_silence=300)
        await client.send_pcm(tone(2000, 2), quiet(0.2))
        assert (await turn_of(client))[-1]["speaker_label"] == "B"


async def test_mu_law_is_taken_and_a_sound_without_words_is_no_turn(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = lambda number, request: Transcript("en", 0.9)
    async with assembly(turn_server, sample_rate=8000, encoding="pcm_mulaw") as client:
        await client.receive()
        await client.socket.send(b"\x00\x80" * 4000 + b"\xff" * 8000)
        await client.send("Terminate")
        rest, _, _ = await client.rest()
    assert [one["type"] for one in rest] == ["Termination"]
    assert rest[0]["audio_duration_seconds"] == 2


async def test_wrong_messages_are_warned_of_and_change_nothing(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = said
    async with assembly(turn_server, **PRO) as client:
        await client.receive()
        wrongs: list[Any] = [
            *({"type": "UpdateConfiguration", **one} for one in WRONG_CHANGES),
            {"type": "Unknown"},
            {},
            [],
        ]
        for wrong in wrongs:
            await client.socket.send(json.dumps(wrong))
            warning = await client.receive()
            assert warning["type"] == "Warning" and warning["warning_code"] == 3006, wrong
            assert warning["warning"]
        await client.send_pcm(loud(1), quiet(0.2))
        assert (await turn_of(client))[-1]["transcript"] == "Shall we go?"


WRONG_CHANGES: list[dict[str, Any]] = [
    {"end_of_turn_confidence_threshold": 2},
    {"max_turn_silence": -1},
    {"keyterms_prompt": ["x" * 101]},
    {"keyterms_prompt": "[" * 1000},
    {"language_codes": ["tlh"]},
]


async def test_a_turn_that_the_recogniser_fails_on_ends_with_a_warning(
    turn_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.errors = [EngineLost("lost")] * 9
    async with assembly(turn_server, **PRO, include_partial_turns="false") as client:
        await client.receive()
        await client.send_pcm(loud(1), quiet(2))
        await client.send("Terminate")
        rest, code, _ = await client.rest()
    assert [one["type"] for one in rest] == ["Warning", "Termination"] and code == 1000


async def test_a_silent_client_is_told_why_its_session_ends(turn_server: SocketServer) -> None:
    async with assembly(turn_server, **STREAM, inactivity_timeout=5) as client:
        await client.receive()
        session = next(iter(turn_server.services.infrastructure.sockets.live))
        session.timeouts.set("audio", 0.01, "no message came for 5 seconds")
        (error,), code, reason = await client.rest()
    assert error == {"type": "Error", "error_code": 3005, "error": reason} and code == 1008


async def test_a_short_token_opens_sockets_and_nothing_else(server: SocketServer) -> None:
    async with httpx.AsyncClient(base_url=f"http://{server.address}") as http:

        async def ask(key: str, **query: Any) -> httpx.Response:
            return await http.get("/v3/token", headers={"Authorization": key}, params=query)

        granted = await ask(server.key, expires_in_seconds=60, max_session_duration_seconds=600)
        assert granted.status_code == 200, granted.text
        assert granted.headers["X-Ignored-Fields"] == "max_session_duration_seconds"
        assert granted.json()["expires_in_seconds"] == 60
        token = granted.json()["token"]
        url = f"ws://{server.address}/v3/ws?sample_rate=16000&token={token}"
        async with connect(url) as socket:
            assert json.loads(await socket.recv())["type"] == "Begin"
        again = await ask(token, expires_in_seconds=60)
        assert (again.status_code, again.json()["error_code"]) == (403, "insufficient_scope")
        assert again.json()["error"] == again.json()["message"]
        spoken = await http.post("/tts-stream", headers={"Authorization": f"Bearer {token}"})
        assert spoken.status_code in (400, 403)
        for wrong in ({}, {"expires_in_seconds": 0}, {"expires_in_seconds": 601}):
            assert (await ask(server.key, **wrong)).status_code == 400
