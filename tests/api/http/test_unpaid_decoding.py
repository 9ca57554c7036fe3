"""What is decoded of recordings that the credit of a workspace does not pay for, on each route."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.services import Services
from tests.api.mcp.test_mcp import failed
from tests.api.money import Books
from tests.api.native.jobs.doing import Headers, do_next, job, recording, transcribe
from tests.api.native.voices.voice_making import enrol
from tests.hostile.audio_files import wav

Send = Callable[[httpx.AsyncClient, Headers, Services, bytes], Awaitable[str]]
CREDIT_S = 20


async def form(
    path: str, client: httpx.AsyncClient, auth: Headers, _: Services, audio: bytes, **data: str
) -> str:
    """The error of a route that takes a form, in any dialect."""
    field = "audio" if path in ("/stt", "/audio/verify") else "file"
    answer = await client.post(path, headers=auth, files={field: ("a.wav", audio)}, data=data)
    assert answer.status_code == 403, answer.text
    return answer.text


async def listen(client: httpx.AsyncClient, auth: Headers, _: Services, audio: bytes) -> str:
    headers = {**auth, "Content-Type": "audio/wav"}
    answer = await client.post("/v1/listen", headers=headers, content=audio)
    assert answer.status_code == 403, answer.text
    return answer.text


async def tool(client: httpx.AsyncClient, auth: Headers, _: Services, audio: bytes) -> str:
    return await failed(client, auth, "transcribe", audio=b64encode(audio).decode())


async def work(client: httpx.AsyncClient, auth: Headers, services: Services, audio: bytes) -> str:
    made = await transcribe(client, auth, audio)
    await do_next(services)
    return str((await job(client, auth, made["id"]))["error"])


ROUTES: dict[str, Send] = {
    "native": partial(form, "/stt"),
    "two channels": partial(form, "/stt", multichannel="true"),
    "watermark": partial(form, "/audio/verify"),
    "OpenAI": partial(form, "/openai/v1/audio/transcriptions"),
    "OpenAI, streamed": partial(form, "/openai/v1/audio/transcriptions", stream="true"),
    "ElevenLabs": partial(form, "/v1/speech-to-text", model_id="scribe_v1"),
    "Deepgram": listen,
    "MCP": tool,
    "job": work,
}


@pytest.fixture
def decoded(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that the decoder was allowed."""
    decoder, allowed = services.speech.decoder, list[float]()
    decode = decoder.decode

    async def counted(path: Path, **options: Any) -> Any:
        allowed.append(options["max_duration_s"])
        return await decode(path, **options)

    monkeypatch.setattr(decoder, "decode", counted)
    return allowed


@pytest.mark.parametrize("route", ROUTES)
async def test_no_more_of_a_recording_is_decoded_than_the_credit_pays_for(
    route: str,
    client: httpx.AsyncClient,
    auth: Headers,
    services: Services,
    books: Books,
    decoded: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(services.speech.watermarks), "check_on", lambda _: None)
    channels = 2 if route == "two channels" else 1
    await books.set_credit(CREDIT_S * 100)
    audio = recording(CREDIT_S + 10, channels=channels)
    assert "insufficient_credit" in await ROUTES[route](client, auth, services, audio)
    assert decoded == [CREDIT_S / channels]
    assert "capture" not in await books.kinds()


async def test_what_the_credit_pays_for_is_decoded(
    client: httpx.AsyncClient, auth: Headers, books: Books, decoded: list[float]
) -> None:
    await books.set_credit(CREDIT_S * 100)
    audio = {"audio": recording(CREDIT_S)}
    assert (await client.post("/stt", headers=auth, files=audio)).status_code == 200
    assert (await books.charged("stt"))[0] == CREDIT_S * 1000
    await books.set_credit(10_000_000)
    long = {"audio": wav(bytes(2 * 16_000 * 601))}
    answer = await client.post("/stt", headers=auth, files=long)
    assert answer.json()["error"] == "audio_too_long"  # which can be paid for


async def test_no_voice_of_a_speaker_is_decoded_without_credit(
    client: httpx.AsyncClient, auth: Headers, books: Books, decoded: list[float]
) -> None:
    await books.set_credit(10)
    assert (await enrol(client, auth))["error"] == "insufficient_credit"
    assert decoded == []
