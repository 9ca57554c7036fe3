"""Charges and webhook events of the transcription of files."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from api.native import transcription as routes
from api.services import Services
from models.errors import EngineOverloaded
from models.stt.base import STT_SAMPLE_RATE
from pipelines.errors import InvalidAudio
from pipelines.stt.file import DecodedRecording
from tests.api.disconnects import send_and_disconnect
from tests.api.money import Books
from tests.api.native.speech.test_billing import allow_hangups
from tests.hostile.audio_files import wav

Headers = dict[str, str]
Transcribe = Callable[[DecodedRecording], Awaitable[None]]


@pytest.fixture
def transcribed_by(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Transcribe], None]:
    """Replaces the transcription by a function."""
    pipeline = services.speech.transcription.pipeline
    return lambda transcribe: monkeypatch.setattr(pipeline, "transcribe", transcribe)


async def test_transcription_is_charged_by_the_decoded_duration(
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    speech: np.ndarray,
    speech_wav: bytes,
) -> None:
    await books.add_webhook("stt.completed", "stt.failed")
    answer = await client.post("/stt", headers=auth, files={"audio": speech_wav})
    assert answer.status_code == 200
    milliseconds = round(len(speech) / STT_SAMPLE_RATE * 1000)
    assert await books.charged("stt") == (milliseconds, -(-milliseconds * 100 // 1000))
    (event,) = await books.events()
    assert event["event"] == "stt.completed"
    assert set(event["data"]) == {"id", "text", "language", "duration"}
    for field in ("text", "language", "duration"):
        assert event["data"][field] == answer.json()[field]


async def test_a_transcript_that_cannot_be_serialised_is_not_charged(
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    speech_wav: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("not a number")

    monkeypatch.setattr(routes, "transcription_result", fail)
    answer = await client.post("/stt", headers=auth, files={"audio": speech_wav})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    assert await books.kinds() == ["hold", "release"]


@pytest.mark.parametrize(
    ("path", "field"),
    [("/stt", "audio"), ("/audio/verify", "audio"), ("/openai/v1/audio/transcriptions", "file")],
)
@pytest.mark.parametrize("size", [1000, 2**21])
async def test_recordings_need_credit_for_ten_seconds_before_decoding(
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    field: str,
    size: int,
) -> None:
    async def decode(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    received = 0

    async def body() -> AsyncIterator[bytes]:  # without Content-Length
        nonlocal received
        head = f'Content-Disposition: form-data; name="{field}"; filename="a.wav"'
        yield f"--x\r\n{head}\r\n\r\n".encode()
        for _ in range(size // 1000):
            received += 1000
            yield b"RIFF" * 250
        yield b"\r\n--x--\r\n"

    monkeypatch.setattr(services.speech.decoder, "decode", decode)
    await books.set_credit(999)
    headers = {**auth, "Content-Type": "multipart/form-data; boundary=x"}
    answer = await client.post(path, headers=headers, content=body())
    code = answer.json()["error"]
    code = code if isinstance(code, str) else code["code"]
    assert (answer.status_code, code) == (403, "insufficient_credit")
    assert received < 2**20 + 2**18
    assert await books.kinds() == []


async def test_the_workspace_of_a_request_takes_the_turn_of_its_file(
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners: list[object] = []

    async def decode(path: Path, *, owner: object = "", **_: object) -> None:
        owners.append(owner)
        raise InvalidAudio("no")

    monkeypatch.setattr(services.speech.decoder, "decode", decode)
    for path, fields in (
        ("/stt", {"audio": b"RIFF"}),
        ("/openai/v1/audio/transcriptions", {"file": b"RIFF"}),
    ):
        answer = await client.post(path, headers=auth, files=fields)
        assert answer.status_code == 400
    recordings = [("files", (f"{number}.wav", wav(bytes(2 + number)))) for number in range(3)]
    data = {"name": "A"}
    answer = await client.post("/voices", headers=auth, data=data, files=recordings)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_audio")
    assert owners == [books.workspace_id] * 3


@pytest.mark.parametrize(("failure", "status"), [("not audio", 400), ("no credit", 403)])
async def test_failed_decodes_beyond_the_free_ones_cost_ten_seconds(
    failure: str,
    status: int,
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow_hangups(monkeypatch, services, 1)
    audio = b"RIFF" * 100 if failure == "not audio" else wav(bytes(2 * 16_000 * 31))
    await books.set_credit(3000)
    for language, expected in (("xx", 400), ("", status), ("", status)):
        files, data = {"audio": audio}, {"language": language}
        answer = await client.post("/stt", headers=auth, files=files, data=data)
        assert answer.status_code == expected
    assert await books.kinds() == ["hold", "capture"]  # an unknown language needs no decoding
    assert await books.charged("stt") == (10_000, 1000)


async def test_a_failed_transcription_is_not_charged_and_sends_a_failed_event(
    client: httpx.AsyncClient,
    auth: Headers,
    books: Books,
    speech_wav: bytes,
    transcribed_by: Callable[[Transcribe], None],
) -> None:
    async def transcribe(recording: DecodedRecording) -> None:
        raise EngineOverloaded("busy")

    transcribed_by(transcribe)
    await books.add_webhook("stt.failed")
    answer = await client.post("/stt", headers=auth, files={"audio": speech_wav})
    assert answer.status_code == 503
    assert await books.kinds() == ["hold", "release"]
    (event,) = await books.events()
    assert event["event"] == "stt.failed"
    assert {**event["data"], "id": ""} == {"id": "", "error": "overloaded", "message": "busy"}


@pytest.mark.parametrize("path", ["/stt", "/openai/v1/audio/transcriptions"])
async def test_disconnects_beyond_the_free_ones_are_charged(
    path: str,
    app: FastAPI,
    services: Services,
    auth: Headers,
    books: Books,
    speech_wav: bytes,
    transcribed_by: Callable[[Transcribe], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow_hangups(monkeypatch, services, 1)
    began = asyncio.Event()

    async def block(recording: DecodedRecording) -> None:
        began.set()
        await asyncio.Event().wait()

    transcribed_by(block)
    field = "audio" if path == "/stt" else "file"
    for charged in ([], ["hold", "capture"]):
        began.clear()
        sent = httpx.Request("POST", f"http://test{path}", files={field: speech_wav}, headers=auth)
        assert await send_and_disconnect(app, sent, began) == 499
        assert await books.kinds() == ["hold", "release", *charged]
    units, _ = await books.charged("stt")
    assert units == (await books.entries())[-1].units > 0
