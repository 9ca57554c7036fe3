"""What sessions of voice agents are charged, and what they cost when the credit ends."""

import asyncio
import base64
import math
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from api.services import Services
from models.errors import EngineLost, EngineOverloaded
from models.stt.base import Transcript, TranscriptionRequest
from pipelines.agents.clauses import ClauseSplitter, Urgency
from pipelines.chat.pipeline import ChatPipeline, ChatRequest, Completion
from tests.api.money import Books
from tests.api.native.speech.test_billing import allow_hangups
from tests.api.openai.realtime.test_conversation import LONG, says, session
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet, transcript

CHARACTER, SECOND, TOKEN = 15, 100, 20  # micro-USD
TEXT = "One two three."
HELD = 1000 * CHARACTER  # of a turn's speech


async def charges(server: SocketServer, books: Books) -> dict[str, int]:
    """Units by service, when the session is over."""
    await server.until_empty()
    units: dict[str, int] = {}
    for entry in await books.entries():
        if entry.kind == "capture":
            assert entry.key_id == books.key_id
            units[entry.service] = units.get(entry.service, 0) + entry.units
            price = {"tts": CHARACTER, "chat": TOKEN, "stt": SECOND / 1000}[entry.service]
            assert -entry.amount == round(entry.units * price)
    holds = [entry for entry in await books.entries() if entry.kind == "hold"]
    ended = [entry for entry in await books.entries() if entry.kind in ("capture", "release")]
    assert len(holds) == len(ended)
    return units


async def test_a_session_costs_its_seconds_its_tokens_and_its_characters(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    await books.add_webhook("tts.completed")
    heard.answer = says(TEXT)
    async with session(server) as client:
        await client.utter(1.0, 1.0)
        usage = (await client.until("response.done"))["response"]["usage"]
    tokens = usage["input_tokens"] + usage["output_token_details"]["text_tokens"]
    assert await charges(server, books) == {"stt": 2000, "chat": tokens, "tts": len(TEXT)}
    assert await books.events() == []  # of single sentences


@pytest.mark.parametrize("part", ["chat", "speech"])
async def test_a_turn_that_the_credit_does_not_cover_fails_before_it_begins(
    part: str, server: SocketServer, books: Books
) -> None:
    await books.set_credit(HELD - 1 if part == "speech" else HELD + 20 * TOKEN)
    async with session(server) as client:
        response = await client.say(TEXT)
        assert response["status"] == "failed" and response["output"] == []
        error = response["status_details"]["error"]
        assert (error["code"], error["type"]) == ("insufficient_quota", "insufficient_quota")
        assert "credit" in error["message"] and response["usage"]["total_tokens"] == 0
        await books.set_credit(1_000_000)
        assert (await client.respond())["status"] == "completed"
    assert (await charges(server, books))["tts"] == len(TEXT)


async def test_an_answer_longer_than_its_hold_ends_where_the_credit_does(
    server: SocketServer, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sentences(ClauseSplitter):
        """Takes one at a time, also when the machine is so busy that several come at once."""

        def take(self, urgency: Urgency, *, letters_per_s: float = math.inf) -> str:
            taken = super().take(urgency, letters_per_s=letters_per_s)
            first, mark, rest = taken.partition(". ")
            self._rest = rest + self._rest
            return first + mark

    longer = LONG * 5  # than what is made before it is sent
    monkeypatch.setattr("pipelines.agents.held_speech.HELD_CHARACTERS", 30)
    monkeypatch.setattr("pipelines.agents.response.ClauseSplitter", Sentences)
    async with session(server) as client:
        await client.begin(longer)
        for _ in range(5):
            await client.until("response.output_audio.delta")
        await books.set_credit(0)
        response = (await client.until("response.done"))["response"]
    assert response["status"] == "failed"
    assert response["status_details"]["error"]["code"] == "insufficient_quota"
    (item,) = response["output"]
    said = item["content"][0]["transcript"]
    assert said and longer.startswith(said) and item["status"] == "incomplete"
    assert (await charges(server, books))["tts"] == len(said)


async def test_a_microphone_without_credit_closes_the_session(
    server: SocketServer, books: Books
) -> None:
    await books.set_credit(SECOND)
    async with session(server) as client:
        events = []
        with pytest.raises(ConnectionClosed):
            await client.speak(quiet(3.0))
            while True:
                events.append(await client.receive())
        assert client.socket.close_code == 4402
        assert events[-1]["error"]["code"] == "insufficient_quota"
    assert (await charges(server, books))["stt"] <= 1000


@pytest.mark.parametrize("end", ["cancelled", "vanished"])
async def test_an_interrupted_answer_costs_what_was_sent_of_it(
    end: str, server: SocketServer, books: Books
) -> None:
    async with session(server) as client:
        await client.begin(LONG)
        sent: list[Any] = []
        while len(sent) < 5:
            sent.append(await client.until("response.output_audio.delta"))
        if end == "vanished":
            client.socket.transport.abort()
        else:
            await client.send("response.cancel")
            await client.until("response.done")
    units = await charges(server, books)
    seconds = sum(len(base64.b64decode(event["delta"])) for event in sent) / 48_000
    assert seconds < 1.0
    # The long tail of the answer was made ahead and is not charged.
    assert 0 < units["tts"] < len(LONG) / 3 and units["chat"] > 0


async def test_many_answers_cancelled_before_their_first_token_cost_their_prompts(
    server: SocketServer, books: Books, plain: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_hangups(monkeypatch, plain, 2)
    asked = asyncio.Event()

    async def thinks(*_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        asked.set()
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr("tests.engines.echo.EchoEngine.generate", thinks)
    async with session(server) as client:
        for _ in range(3):
            asked.clear()
            await client.begin(TEXT)
            await asked.wait()
            await client.send("response.cancel")
            assert (await client.until("response.done"))["response"]["status"] == "cancelled"
    units = await charges(server, books)
    assert set(units) == {"chat"} and 0 < units["chat"] < 100
    ends = [e.kind for e in await books.entries() if e.service == "chat" and e.kind != "hold"]
    assert ends == ["release", "release", "capture"]


async def test_a_session_that_vanishes_before_its_answer_leaves_no_hold(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    heard.answer = says(TEXT)
    async with session(server) as client:
        await client.speak(loud(1.0))
        await client.speak(quiet(0.3))  # long enough for a draft, too short for the end
        client.socket.transport.abort()
    assert set(await charges(server, books)) == {"stt"}


async def test_drafts_that_the_user_talks_over_cost_nothing(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    heard.answer = lambda number, request: says(f"Text {number}.")(number, request)
    async with session(server) as client:
        for _ in range(3):
            await client.utter(0.6, 0.3)
        await client.speak(quiet(0.6))
        usage = (await client.until("response.done"))["response"]["usage"]
    tokens = usage["input_tokens"] + usage["output_token_details"]["text_tokens"]
    assert (await charges(server, books))["chat"] == tokens


async def test_speech_on_which_the_service_fails_is_not_charged(
    server: SocketServer, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise EngineLost("gone")

    monkeypatch.setattr("pipelines.tts.pipeline.SpeechPipeline.plan", fail)
    async with session(server) as client:
        response = await client.say(TEXT)
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["type"] == "server_error"
    assert "tts" not in await charges(server, books)


async def test_a_long_turn_is_not_charged_if_a_part_has_no_text(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    def answer(number: int, request: TranscriptionRequest) -> Transcript:
        if len(request.pcm) < 10 * 16_000:
            raise EngineLost("gone")
        return transcript(number, request)

    heard.answer = answer
    async with session(server) as client:
        await client.update(audio={"input": {"turn_detection": None}})
        await client.speak(loud(30.0), piece_s=0.5)  # it is cut after 28 s
        await client.send("input_audio_buffer.commit")
        await client.until("conversation.item.input_audio_transcription.failed")
    assert (await charges(server, books)).get("stt", 0) < 100  # frames around the speech


async def test_a_turn_without_a_slot_for_its_draft_is_answered(
    server: SocketServer,
    heard: FakeTranscriber,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = ChatPipeline.start

    async def busy(pipeline: ChatPipeline, request: ChatRequest) -> Completion:
        if request.generation.is_speculative:
            raise EngineOverloaded("no slot")
        return await start(pipeline, request)

    monkeypatch.setattr(ChatPipeline, "start", busy)
    heard.answer = says(TEXT)
    async with session(server) as client:
        await client.utter(1.0, 1.0)
        assert (await client.until("response.done"))["response"]["status"] == "completed"
    assert (await charges(server, books))["chat"] > 0
