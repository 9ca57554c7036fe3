"""Webhook events of failures of the service, most of them before credit is held: one each."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from db.errors import DatabaseUnavailable
from models.audio import AudioChunk
from models.base import ModelInfo
from models.errors import EngineLost
from models.stt.base import STT_SAMPLE_RATE
from models.tts.base import SynthesisRequest
from pipelines.webhooks import events
from tests.api.in_process import client_of
from tests.api.money import Books, books_of
from tests.api.native.speech.test_stream import app_with
from tests.hostile.audio_files import wav
from tests.pipelines.stt.voiced import VoicedSpeaker

Headers = dict[str, str]

SPEECH: list[tuple[str, dict[str, Any]]] = [
    ("/tts-synthesize", {"text": "Hello."}),
    ("/tts-synthesize", {"text": "Hello.", "voice_id": "somebody"}),
    ("/tts-stream", {"text": "Hello."}),
    ("/openai/v1/audio/speech", {"model": "tts-1", "input": "Hello.", "voice": "alloy"}),
    ("/openai/v1/audio/speech", {"model": "tts-1", "input": "Hello."}),
    ("/tts/v1/voice", {"text": "Hello.", "voiceId": "somebody", "modelId": "m"}),
    ("/tts/v1/voice:stream", {"text": "Hello.", "voiceId": "somebody", "modelId": "m"}),
]
FILE = wav(b"\0\0" * STT_SAMPLE_RATE, rate=STT_SAMPLE_RATE)


class LostSpeaker(VoicedSpeaker):
    """The handle of a model that is down."""

    async def describe(self) -> ModelInfo:
        raise EngineLost("the replica died")


class SilentSpeaker(VoicedSpeaker):
    """Synthesises no audio."""

    async def synthesize(self, request: SynthesisRequest) -> AsyncGenerator[AudioChunk, None]:
        return
        yield


class LostTranscriber:
    """The handle of a recogniser that is down."""

    async def describe(self) -> ModelInfo:
        raise EngineLost("the replica died")


@pytest.fixture
async def books(services: Services, auth: Headers) -> Books:
    books = await books_of(services, auth)
    await books.add_webhook("tts.failed", "stt.failed", "tts.completed", "stt.completed")
    return books


async def post(app: FastAPI, path: str, auth: Headers, **options: Any) -> httpx.Response:
    async with client_of(app) as client:
        return await client.post(path, headers=auth, **options)


@pytest.mark.parametrize(("path", "body"), SPEECH)
async def test_speech_without_a_model_sends_one_failed_event(
    path: str, body: dict[str, Any], services: Services, auth: Headers, books: Books
) -> None:
    answer = await post(app_with(services, LostSpeaker()), path, auth, json=body)
    assert answer.status_code == 503, answer.text
    (event,) = await books.events()
    assert event["event"] == "tts.failed"
    assert set(event["data"]) == {"id", "voice_id", "error", "message"}
    assert event["data"]["error"] == "unavailable"
    assert event["data"]["voice_id"] in (None, "somebody")
    assert await books.kinds() == []


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/stt", {"language": "en"}),
        ("/openai/v1/audio/transcriptions", {"model": "whisper-1", "language": "en"}),
        (
            "/openai/v1/audio/transcriptions",
            {"model": "whisper-1", "language": "en", "stream": "true"},
        ),
    ],
)
async def test_transcription_without_a_model_sends_one_failed_event(
    path: str,
    fields: dict[str, str],
    services: Services,
    auth: Headers,
    books: Books,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services.speech.transcription.pipeline, "_transcriber", LostTranscriber())
    name = "audio" if path == "/stt" else "file"
    answer = await post(create_app(services), path, auth, files={name: FILE}, data=fields)
    assert answer.status_code == 503, answer.text
    (event,) = await books.events()
    assert event["event"] == "stt.failed"
    assert set(event["data"]) == {"id", "error", "message"}
    assert event["data"]["message"] == "the replica died"
    assert await books.kinds() == []


async def test_client_errors_send_no_event(services: Services, auth: Headers, books: Books) -> None:
    for speaker, body in (
        (VoicedSpeaker(), {"text": "!!!"}),
        (VoicedSpeaker(), {"text": "Hello.", "speed": 17}),
        (VoicedSpeaker(), {"text": "Hello.", "voice": "Nobody"}),
        (SilentSpeaker(), {"text": "Hello."}),
    ):
        app = app_with(services, speaker)
        answer = await post(app, "/tts-synthesize", auth, json=body)
        assert answer.status_code in (400, 404), answer.text
    for file, fields in ((b"RIFF" * 100, {}), (FILE, {"language": "??"})):
        app = create_app(services)
        answer = await post(app, "/stt", auth, files={"audio": file}, data=fields)
        assert answer.status_code == 400, answer.text
    await books.set_credit(0)
    app = app_with(services, VoicedSpeaker())
    answer = await post(app, "/tts-stream", auth, json={"text": "Hello."})
    assert answer.status_code == 403, answer.text
    assert await books.events() == []


async def test_no_event_is_written_without_a_subscribed_webhook(
    services: Services, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = await books_of(services, auth)
    await books.add_webhook("stt.failed")
    monkeypatch.setattr(events, "add_event", None)
    answer = await post(
        app_with(services, LostSpeaker()), "/tts-stream", auth, json={"text": "Hello."}
    )
    assert answer.status_code == 503
    assert await books.events() == []


async def test_an_error_of_the_webhook_store_does_not_hide_the_failure(
    services: Services, auth: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wants(*_: object) -> bool:
        raise DatabaseUnavailable("down")

    monkeypatch.setattr(events.WebhookEvents, "wants", wants)
    app = app_with(services, LostSpeaker())
    answer = await post(app, "/tts-synthesize", auth, json={"text": "Hello."})
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert "speech" in answer.json()["message"]  # not the database
