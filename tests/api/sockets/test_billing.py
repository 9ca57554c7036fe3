"""What sessions are charged, and the webhook events of them."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from models.errors import EngineLost
from tests.api.money import Books
from tests.api.sockets.client import TtsClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.stt.client import SttClient, stt
from tests.api.sockets.test_sessions import limit
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

TEXT = "The harbour lay still. It carried letters and tea."
CHARACTER, SLICE = 15, 6000  # micro-USD


@pytest.fixture
async def books(stt_server: SocketServer) -> Books:
    return await stt_server.books()


async def test_a_flush_is_charged_by_its_characters(stt_server: SocketServer, books: Books) -> None:
    await books.add_webhook("tts.completed")
    async with stt_server.tts() as client:
        await client.create()
        await client.speak(TEXT)
        await client.speak("Again.")
        assert await books.charged("tts") == (len(TEXT) + 6, (len(TEXT) + 6) * CHARACTER)
        await client.speak(" \n ")
        await client.speak("!!!")  # nothing is held for it: it has no letter
    assert await books.charged("tts") == (len(TEXT) + 6, (len(TEXT) + 6) * CHARACTER)
    first, second = await books.events()
    assert (first["data"]["text"], second["data"]["text"]) == (TEXT, "Again.")
    assert first["data"]["voice_id"] == stt_server.voice_id
    path = first["data"]["audio_url"].removeprefix("http://test")
    async with httpx.AsyncClient(trust_env=False) as http:
        file = await http.get(f"http://{stt_server.address}{path}")
    assert (file.status_code, file.headers["content-type"]) == (200, "audio/mpeg")


async def test_a_flush_without_credit_gets_an_error_and_the_context_stays_usable(
    stt_server: SocketServer, books: Books
) -> None:
    await books.set_credit(10 * CHARACTER)
    async with stt_server.tts() as client:
        await client.create(context_id="c", timestamps=True)
        await client.send("send_text", text=TEXT)
        error = await client.error("flush_context")
        assert error["context_id"] == "c" and "credit" in error["message"]
        assert await client.speak("Ten chars.")
    assert await books.charged("tts") == (10, 10 * CHARACTER)


async def test_a_client_that_stops_reading_pays_for_what_was_sent(
    stt_server: SocketServer, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(stt_server, monkeypatch, send_timeout_s=1.0, outbox_bytes=200_000)
    text = "Speech that is sent, and that its client does not read. " * 200
    async with connect(stt_server.url("/ws/tts"), max_queue=1, close_timeout=0.2) as socket:
        client = TtsClient(socket, stt_server.voice_id)
        for _ in range(2):
            await client.receive()
        await client.create(audio_config={"sample_rate_hertz": 48_000})
        await client.send("send_text", text=text)
        await client.send("flush_context")
        await stt_server.until_empty()
    units, _ = await books.charged("tts")
    assert 0 < units < len(text)


@pytest.mark.parametrize("text", ["777777777777777 " * 3125, "a\n" * 25_000])
async def test_a_flush_of_too_long_speech_is_refused_and_free(
    text: str, stt_server: SocketServer, books: Books
) -> None:
    async with stt_server.tts() as client:
        await client.create(context_id="c")
        await client.send("send_text", text=text)
        error = await client.error("flush_context")
        assert error["context_id"] == "c"
        assert "its speech would last about" in error["message"] and "150 min" in error["message"]
        assert await client.speak("Ten chars.")
    assert await books.charged("tts") == (10, 10 * CHARACTER)


async def test_a_flush_of_digits_costs_a_third_of_its_spoken_letters(
    stt_server: SocketServer, books: Books
) -> None:
    async with stt_server.tts() as client:
        await client.create()
        await client.speak("7,777,777")
    said = "seven million seven hundred and seventy-seven thousand seven hundred and seventy-seven"
    assert await books.charged("tts") == (29, 29 * CHARACTER)
    assert len(said) / 3 == pytest.approx(29, abs=1)


@pytest.fixture
async def client(stt_server: SocketServer) -> AsyncIterator[SttClient]:
    async with stt(stt_server) as made:
        yield made


def summary_of(messages: list[dict[str, Any]]) -> dict[str, Any]:
    assert messages[-1]["type"] == "session_stopped"
    summary: dict[str, Any] = messages[-1]["billing_summary"]
    return summary


async def test_the_billing_summary_of_a_session_equals_its_ledger_charge(
    client: SttClient, books: Books
) -> None:
    await books.add_webhook("stt.completed", "stt.failed")
    await client.start(continuous_mode=True)
    await client.send_pcm(loud(0.5), quiet(1.0), loud(0.5), quiet(1.0), step_s=0.5)
    messages, code = await client.stop()
    assert code == 1000
    assert summary_of(messages)["total_cost"] == 0.0003
    assert await books.charged("stt") == (3000, 300)
    (event,) = await books.events()
    assert event["event"] == "stt.completed"
    assert {**event["data"], "id": ""} == {
        "id": "",
        "text": "text 0 text 1",
        "language": "en",
        "duration": 3.0,
    }


async def test_a_long_session_is_charged_in_slices_of_60_s(client: SttClient, books: Books) -> None:
    await client.start(continuous_mode=True)
    await client.send_pcm(quiet(130.005), step_s=5)
    messages, _ = await client.stop()
    assert [kind for kind in await books.kinds() if kind != "hold"] == ["capture"] * 3
    assert await books.charged("stt") == (130_005, 2 * SLICE + 1001)
    assert summary_of(messages)["total_cost"] == 0.013001


async def test_running_out_of_credit_ends_a_session_with_code_4402(
    client: SttClient, books: Books
) -> None:
    await books.set_credit(SLICE + 550)
    await client.start(continuous_mode=True)
    await client.send_pcm(loud(0.5), quiet(70), step_s=0.5)
    messages, code = await client.receive_rest()
    assert code == 4402
    kinds = [message["type"] for message in messages]
    assert kinds == ["speech_started", "transcription", "error", "session_stopped"]
    assert "credit" in messages[-2]["error"]
    assert summary_of(messages)["total_cost"] == 0.00655
    assert await books.charged("stt") == (65_500, SLICE + 550)


async def test_a_session_without_credit_transcribes_nothing_and_closes_with_4402(
    client: SttClient, books: Books, fake: FakeTranscriber
) -> None:
    await books.set_credit(0)
    await client.start()
    await client.send_pcm(loud(0.5), step_s=0.5)
    messages, code = await client.receive_rest()
    assert [message["type"] for message in messages] == ["error", "session_stopped"]
    assert (code, fake.requests) == (4402, [])
    assert summary_of(messages)["total_cost"] == 0
    assert await books.kinds() == []


async def test_audio_that_the_recogniser_failed_on_is_not_charged(
    client: SttClient, books: Books, fake: FakeTranscriber
) -> None:
    await books.add_webhook("stt.failed")
    fake.errors = [EngineLost("gone")] * 9
    await client.start(continuous_mode=True)
    await client.send_pcm(loud(2.0), quiet(1.0), step_s=0.5)
    messages, _ = await client.stop()
    units, cost = await books.charged("stt")
    assert units < 1500
    assert summary_of(messages)["total_cost"] == cost / 1_000_000
    (event,) = await books.events()
    assert event["event"] == "stt.failed" and event["data"]["error"] == "unavailable"


async def test_stt_disconnect_bills_received_audio(stt_server: SocketServer, books: Books) -> None:
    await books.add_webhook("stt.completed")
    async with stt(stt_server) as client:
        await client.start(continuous_mode=True)
        await client.send_pcm(loud(0.5), quiet(1.5), step_s=0.5)
        await client.send({"type": "test"})  # answered after all of the audio was processed
        heard = await client.receive_until("test_response")
        if "transcription" not in [message.get("type") for message in heard]:
            await client.receive_until("transcription")
        client.socket.transport.abort()
    await stt_server.until_empty()
    assert await books.charged("stt") == (2000, 200)
    assert [event["event"] for event in await books.events()] == ["stt.completed"]


async def test_a_session_without_audio_is_not_charged(client: SttClient, books: Books) -> None:
    await client.start()
    messages, _ = await client.stop()
    assert summary_of(messages)["total_cost"] == 0
    assert await books.kinds() == []
