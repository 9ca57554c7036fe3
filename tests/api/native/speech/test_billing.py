"""Charges and webhook events of speech over REST."""

import asyncio
import io
import json
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any

import av
import httpx
import pytest
from fastapi import FastAPI
from sqlmodel import Session, select

from api.native.speech import LineWriter
from api.services import Services
from db.billing import ledger
from db.billing.tables import CreditHold
from db.database import utc_now
from db.errors import DatabaseUnavailable
from models.audio import AudioChunk
from models.errors import EngineError, EngineOverloaded, EngineStopped
from models.tts.base import SynthesisRequest
from pipelines.audio.encode.encoder import FileWriter
from pipelines.billing import billing
from pipelines.billing.billing import Charge
from pipelines.errors import StorageUnavailable, VoiceNotFound
from pipelines.storage.files import Files
from pipelines.tts import paid
from pipelines.tts.shaping import SpokenChunk
from tests.api.disconnects import send_and_disconnect
from tests.api.in_process import client_of
from tests.api.money import Books
from tests.api.native.speech.test_stream import app_with
from tests.patience import PATIENCE_S
from tests.pipelines.stt.voiced import VOICE, VoicedSpeaker

Headers = dict[str, str]

TEXT = "The harbour lay still. Nobody expected the ship at all! It carried letters and tea."
PATHS = ["/tts-synthesize", "/tts-stream"]
WHOLE = ["/tts-synthesize", "/tts/v1/voice"]
ASKED = {"text": TEXT, "voiceId": VOICE.voice_id}
PRICE = 15  # micro-USD a character


class FailsAtWord(VoicedSpeaker):
    """Raises `error` on a chunk of text with `word` in it; without an error it blocks there."""

    def __init__(self, word: str, error: Exception | None = None) -> None:
        super().__init__()
        self.word, self.error = word, error
        self.reached = asyncio.Event()

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        if self.word in request.text:
            self.reached.set()
            if self.error is None:
                await asyncio.Event().wait()
            else:
                raise self.error
        async for chunk in super().synthesize(request):
            yield chunk


async def post(app: FastAPI, path: str, auth: Headers, **body: Any) -> httpx.Response:
    async with client_of(app) as client:
        return await client.post(path, json={"text": TEXT, **body}, headers=auth)


BEGIN = "The harbour lay still. Nobody expected the ship at all!"
NUMBERS = "8 777 777. " * 20


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        (f"<speak>{BEGIN} It carried letters.<!--{' x' * 2000}--></speak>", len(BEGIN)),
        (f"{BEGIN} It carried letters.{' [laughs]' * 400}", len(BEGIN)),
        (f"{NUMBERS} It carried letters. {'It is so. ' * 400}", 2 * len(NUMBERS)),
    ],
)
async def test_what_follows_makes_the_begin_of_a_text_no_cheaper(
    text: str, begin: int, services: Services, auth: Headers, books: Books
) -> None:
    """A client that hangs up pays for what it was sent, not for a share of what is not spoken."""
    app = app_with(services, FailsAtWord("letters", VoiceNotFound("the voice was deleted")))
    await post(app, "/tts-stream", auth, text=text, voiceId=VOICE.voice_id)
    units, _ = await books.charged("tts")
    assert begin - 2 <= units < len(text)


async def test_a_stream_whose_encoding_fails_is_not_charged(
    app: FastAPI, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    await books.add_webhook("tts.failed")
    write = LineWriter.write
    chunks = 0

    def fail_later(writer: LineWriter, chunk: SpokenChunk) -> bytes:
        nonlocal chunks
        chunks += 1
        if chunks > 1:
            raise ValueError("no more")
        return write(writer, chunk)

    monkeypatch.setattr(LineWriter, "write", fail_later)
    answer = await post(app, "/tts-stream", auth)
    assert json.loads(answer.text.splitlines()[-1])["error"] == "internal_error"
    assert await books.kinds() == ["hold", "release"]
    assert [event["event"] for event in await books.events()] == ["tts.failed"]


@pytest.mark.parametrize(
    ("path", "charged"),
    [("/tts-stream", True), ("/tts-synthesize", False), ("/tts/v1/voice", False)],
)
@pytest.mark.parametrize(
    "end", [VoiceNotFound("the voice was deleted"), EngineStopped("the service stops")]
)
async def test_speech_whose_voice_or_service_goes_costs_what_was_sent(
    path: str,
    charged: bool,
    end: VoiceNotFound | EngineStopped,
    services: Services,
    auth: Headers,
    books: Books,
) -> None:
    app = app_with(services, FailsAtWord("letters", end))
    answer = await post(app, path, auth, voiceId=VOICE.voice_id)
    assert end.code in answer.text.splitlines()[-1]
    assert await books.kinds() == ["hold", "capture" if charged else "release"]
    units, _ = await books.charged("tts")
    sent = TEXT.index("It carried")
    assert units == (len(TEXT[:sent].rstrip()) if charged else 0)


async def test_a_stream_that_outlives_its_first_hold_is_paid_in_full(
    services: Services, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader cannot spend the credit of its stream on other work."""
    monkeypatch.setattr(billing, "RENEW_AFTER_S", 0.02)
    database, speaker = services.infrastructure.database, FailsAtWord("letters")
    await books.set_credit(len(TEXT) * PRICE)
    app = app_with(services, speaker)
    streaming = asyncio.create_task(post(app, "/tts-stream", auth))
    async with asyncio.timeout(PATIENCE_S):
        await speaker.reached.wait()
        soon = utc_now() + billing.HOLD + timedelta(seconds=0.2)
        while await database.read(_first_expiry) <= soon:
            await asyncio.sleep(0.02)
    assert await database.run(ledger.release_expired, soon) == 0
    refused = await post(app, "/tts-synthesize", auth)
    assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_credit")
    speaker.word = "none"
    streaming.cancel()
    await asyncio.wait([streaming])
    assert (await books.charged("tts"))[0] > 0


def _first_expiry(session: Session) -> datetime:
    return session.exec(select(CreditHold.expires_at)).one()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineOverloaded("busy"), 503, "overloaded"),
        (EngineError("it broke at line 3"), 500, "internal_error"),
        (RuntimeError("a secret"), 500, "internal_error"),
    ],
)
async def test_a_failed_request_is_not_charged_and_sends_a_failed_event(
    path: str,
    error: Exception,
    status: int,
    code: str,
    services: Services,
    auth: Headers,
    books: Books,
) -> None:
    await books.add_webhook("tts.failed", "tts.completed")
    answer = await post(app_with(services, FailsAtWord("harbour", error)), path, auth)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert await books.kinds() == ["hold", "release"]
    assert await books.charged("tts") == (0, 0)
    (event,) = await books.events()
    assert event["event"] == "tts.failed"
    assert set(event["data"]) == {"id", "voice_id", "error", "message"}
    assert event["data"]["error"] == code
    assert event["data"]["message"] == answer.json()["message"]
    assert event["data"]["id"] == (await books.entries())[0].operation


async def test_a_stream_that_fails_midway_is_free_and_sends_an_event(
    services: Services, auth: Headers, books: Books
) -> None:
    await books.add_webhook("tts.failed")
    speaker = FailsAtWord("letters", EngineOverloaded("busy"))
    answer = await post(app_with(services, speaker), "/tts-stream", auth)
    last = json.loads(answer.content.splitlines()[-1])
    assert (last["type"], last["error"]) == ("error", "overloaded")
    assert await books.kinds() == ["hold", "release"]
    assert [event["event"] for event in await books.events()] == ["tts.failed"]


@pytest.mark.parametrize("path", WHOLE)
async def test_hang_ups_beyond_the_free_ones_cost_the_speech_made(
    path: str, services: Services, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop of requests that were left just before their answer had the models for nothing."""
    allow_hangups(monkeypatch, services, 2)
    for _ in range(4):
        speaker = FailsAtWord("letters")
        sent = httpx.Request("POST", f"http://test{path}", json=ASKED, headers=auth)
        await send_and_disconnect(app_with(services, speaker), sent, speaker.reached)
        await services.platform.billing.wait_for_settlements()
    assert await books.kinds() == ["hold", "release"] * 2 + ["hold", "capture"] * 2
    units, cost = await books.charged("tts")
    assert 2 * len("The harbour") < units <= 2 * TEXT.index(" letters")
    assert cost == units * PRICE


def allow_hangups(monkeypatch: pytest.MonkeyPatch, services: Services, number: int) -> None:
    """So many are free in an hour."""
    billing = services.platform.billing
    prices = billing._prices.model_copy(update={"free_hangups_per_hour": number})
    monkeypatch.setattr(billing, "_prices", prices)


@pytest.mark.parametrize("path", PATHS)
async def test_the_completed_event_has_a_url_of_the_audio(
    path: str, app: FastAPI, auth: Headers, books: Books
) -> None:
    await books.add_webhook("tts.completed")
    answer = await post(app, path, auth, output_format="ogg")
    assert answer.status_code == 200
    (event,) = await books.events()
    data = event["data"]
    assert set(data) == {"id", "text", "voice_id", "audio_url", "duration"}
    assert data["text"] == TEXT
    async with client_of(app) as client:
        file = await client.get(data["audio_url"])
    # A file is stored in the requested format; a stream as MP3.
    kind = "audio/ogg" if path == "/tts-synthesize" else "audio/mpeg"
    assert (file.status_code, file.headers["content-type"]) == (200, kind)
    with av.open(io.BytesIO(file.content), "r") as container:
        duration_s = sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
    assert duration_s == pytest.approx(data["duration"], abs=0.1)


async def test_the_event_of_a_very_long_stream_has_no_audio(
    app: FastAPI, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid, "COPY_S", 1.0)
    copied: list[float] = []
    add = FileWriter.add

    def counted(writer: FileWriter, audio: AudioChunk) -> None:
        copied.append(audio.duration_s)
        add(writer, audio)

    monkeypatch.setattr(FileWriter, "add", counted)
    await books.add_webhook("tts.completed")
    assert (await post(app, "/tts-stream", auth)).status_code == 200
    (event,) = await books.events()
    assert event["data"]["audio_url"] is None
    assert sum(copied) <= 1.0 < event["data"]["duration"]


async def test_audio_is_not_stored_without_a_subscribed_webhook(
    app: FastAPI, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put(*args: Any) -> str:
        raise AssertionError("stored")

    monkeypatch.setattr(Files, "put", put)
    await books.add_webhook("stt.completed")
    for path in PATHS:
        assert (await post(app, path, auth)).status_code == 200
    assert await books.events() == []


async def test_a_full_file_store_only_drops_the_audio_url_of_events(
    app: FastAPI, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def put(*args: Any) -> str:
        raise StorageUnavailable("full")

    monkeypatch.setattr(Files, "put", put)
    await books.add_webhook("tts.completed")
    assert (await post(app, "/tts-synthesize", auth)).status_code == 200
    (event,) = await books.events()
    assert event["data"]["audio_url"] is None
    assert await books.charged("tts") == (len(TEXT), len(TEXT) * PRICE)


async def test_a_failed_charge_fails_a_file_and_is_retried_for_streams(
    app: FastAPI, auth: Headers, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def capture(*args: Any) -> int:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(Charge, "capture", capture)
    answer = await post(app, "/tts-synthesize", auth)
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert await books.kinds() == ["hold", "release"]
    answer = await post(app, "/tts-stream", auth)  # all its audio is sent
    assert json.loads(answer.content.splitlines()[-1]) == {"type": "complete"}
    assert await books.kinds() == ["hold", "release", "hold", "capture"]
