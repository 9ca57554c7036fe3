"""POST /tts-stream: lines of JSON whose audio is one file."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.native.speech import LineWriter
from api.services import Services
from configs.schema.voices import VoiceRef, VoicesConfig
from models.audio import AudioChunk, Pcm, pcm16_to_float
from models.errors import EngineLost, EngineStopped
from models.tts.base import SynthesisRequest
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.shaping import SpokenChunk
from tests.api.disconnects import scope_of
from tests.api.in_process import client_of
from tests.api.replaced import with_synthesis
from tests.patience import PATIENCE_S
from tests.pipelines.audio.encode.test_files import decode as decode_file
from tests.pipelines.stt.voiced import VoicedSpeaker
from tests.pipelines.stt.voiced import voiced as voiced_audio

Headers = dict[str, str]

TEXT = "The harbour lay still. Nobody expected the ship at all! It carried letters and tea."
FORMATS = ["mp3", "wav", "pcm", "ogg", "flac"]


def app_with(services: Services, speaker: Any) -> FastAPI:
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    return create_app(with_synthesis(services, SpeechPipeline({"one": speaker}, voices)))


@pytest.fixture
async def voiced(services: Services) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app_with(services, VoicedSpeaker())) as client:
        yield client


async def stream(client: httpx.AsyncClient, auth: Headers, **body: Any) -> httpx.Response:
    return await client.post("/tts-stream", json={"text": TEXT, **body}, headers=auth)


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.content.endswith(b"\n")
    return [json.loads(line) for line in answer.content.splitlines()]


def audio_of(lines: list[dict[str, Any]]) -> bytes:
    assert [line["type"] for line in lines] == ["chunk"] * (len(lines) - 1) + ["complete"]
    parts = [b64decode(line["result"]["audioContent"], validate=True) for line in lines[:-1]]
    assert all(parts)
    return b"".join(parts)


def decode(data: bytes, output_format: str) -> tuple[Pcm, int]:
    return (pcm16_to_float(data), 24_000) if output_format == "pcm" else decode_file(data)


def test_a_failing_stream_sends_its_buffered_audio_first() -> None:
    """It is charged when the service stops."""
    writer = LineWriter("pcm", timestamps=False)
    lines = b""
    for seconds in (1.0, 0.05):
        lines += writer.write(SpokenChunk(AudioChunk(voiced_audio(seconds), 24_000)))
    lines += writer.fail(EngineStopped("the service stops"))
    chunks = [json.loads(line) for line in lines.splitlines()]
    assert [chunk["type"] for chunk in chunks] == ["chunk", "chunk", "error"]
    sizes = [len(b64decode(chunk["result"]["audioContent"])) for chunk in chunks[:-1]]
    assert sizes == [48_000, 2_400]


@pytest.mark.parametrize("output_format", FORMATS)
async def test_joined_stream_chunks_are_one_file_equal_to_the_unstreamed_audio(
    voiced: httpx.AsyncClient, auth: Headers, output_format: str
) -> None:
    lines = lines_of(await stream(voiced, auth, output_format=output_format, enhance=False))
    assert len(lines) > 5
    pcm, sample_rate = decode(audio_of(lines), output_format)
    assert {line["result"]["sample_rate"] for line in lines[:-1]} == {sample_rate}
    file_format = "wav" if output_format == "pcm" else output_format
    body = {"text": TEXT, "output_format": file_format, "enhance": False}
    whole = (await voiced.post("/tts-synthesize", json=body, headers=auth)).json()
    expected, _ = decode(b64decode(whole["audio_base64"]), file_format)
    if output_format == "mp3":  # a streamed MP3 cannot declare its length
        assert 0 <= len(pcm) - len(expected) <= 1152
    else:
        assert len(pcm) == len(expected)
    np.testing.assert_allclose(pcm[: len(expected)], expected, atol=2e-4)


async def test_mp3_is_the_default_and_words_are_sent_only_on_request(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    lines = lines_of(await stream(voiced, auth))
    assert b64decode(lines[0]["result"]["audioContent"]).startswith(b"ID3")
    assert set(lines[0]["result"]) == {"audioContent", "sample_rate"}


async def test_word_timings_match_the_input_text(voiced: httpx.AsyncClient, auth: Headers) -> None:
    text = "It costs $5 – really! “Yes,” he said."
    body = {"text": text, "timestamps": True}
    lines = lines_of(await stream(voiced, auth, **body, output_format="wav"))
    words = [word for line in lines[:-1] for word in line["result"]["words"]]
    whole = (await voiced.post("/tts-synthesize", json=body, headers=auth)).json()
    for given, duration_s in (
        (words, len(decode(audio_of(lines), "wav")[0]) / 24_000),
        (whole["words"], whole["duration_seconds"]),
    ):
        assert all(text[one["text_start"] : one["text_end"]] == one["word"] for one in given)
        gaps = zip([0, *(one["text_end"] for one in given)], given, strict=False)
        assert not any(text[end : one["text_start"]].strip(" –") for end, one in gaps)
        assert given[-1]["text_end"] == len(text)
        starts = [one["start"] for one in given]
        assert starts == sorted(starts)
        assert all(one["start"] <= one["end"] <= duration_s + 0.01 for one in given)


async def test_chunk_durations_stay_within_bounds(services: Services, auth: Headers) -> None:
    speaker = VoicedSpeaker(sizes=(240,))  # an engine that gives 10 ms at a time
    async with client_of(app_with(services, speaker)) as client:
        lines = lines_of(await stream(client, auth, output_format="pcm"))
    durations = [len(b64decode(one["result"]["audioContent"])) / 48_000 for one in lines[:-1]]
    assert min(durations[1:-1]) >= 0.1
    assert max(durations) < 0.8


class BlocksTheSecondSentence(VoicedSpeaker):
    """Synthesises the second sentence after `may_continue` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_continue = asyncio.Event()

    async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
        if self.calls:
            await self.may_continue.wait()
        async for chunk in super().synthesize(request):
            yield chunk


async def test_the_first_chunk_is_sent_before_the_second_sentence_is_synthesised(
    services: Services, auth: Headers
) -> None:
    speaker = BlocksTheSecondSentence()
    app = app_with(services, speaker)
    sent = httpx.Request("POST", "http://test/tts-stream", json={"text": TEXT}, headers=auth)
    bodies: asyncio.Queue[bytes] = asyncio.Queue()
    disconnected = asyncio.Event()
    task = asyncio.create_task(call(app, sent, bodies, disconnected))
    async with asyncio.timeout(PATIENCE_S):
        assert json.loads(await bodies.get())["type"] == "chunk"
        assert len(speaker.calls) == 1
        speaker.may_continue.set()
        while json.loads(await bodies.get())["type"] == "chunk":
            pass
        disconnected.set()
        await task


async def call(
    app: FastAPI, sent: httpx.Request, bodies: "asyncio.Queue[bytes]", disconnected: asyncio.Event
) -> None:
    """Calls the application as a server does; puts each body into the queue as it is sent."""
    request = [{"type": "http.request", "body": sent.read(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if request:
            return request.pop()
        await disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            await bodies.put(message["body"])

    await app(scope_of(sent), receive, send)


async def test_an_unknown_voice_name_is_refused_with_a_hint(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    body = {"text": TEXT, "voice": "nobody"}
    (line,) = lines_of(await stream(client, auth, **body))
    assert line["type"] == "error"
    answer = await client.post("/tts-synthesize", json=body, headers=auth)
    assert answer.status_code == 404, answer.text
    for error in (line, answer.json()):
        assert error["error"] == "voice_not_found"
        assert "GET /default-voices" in error["message"]


class FailsAt(VoicedSpeaker):
    """Raises `error` in the call with this number, counted from 0."""

    def __init__(self, call: int, error: Exception) -> None:
        super().__init__()
        self._call, self._error = call, error

    async def synthesize(self, request: SynthesisRequest):  # type: ignore[no-untyped-def]
        if len(self.calls) == self._call:
            raise self._error
        async for chunk in super().synthesize(request):
            yield chunk


@pytest.mark.parametrize(
    ("error", "shown"),
    [(EngineLost("the replica died"), "unavailable"), (RuntimeError("path"), "internal_error")],
)
async def test_a_failure_after_the_first_chunk_is_reported_in_the_last_line(
    services: Services, auth: Headers, error: Exception, shown: str
) -> None:
    async with client_of(app_with(services, FailsAt(1, error))) as client:
        lines = lines_of(await stream(client, auth))
    assert len(lines) > 1
    assert [line["type"] for line in lines[:-1]] == ["chunk"] * (len(lines) - 1)
    assert (lines[-1]["type"], lines[-1]["error"]) == ("error", shown)
    assert "path" not in lines[-1]["message"]


async def test_stream_headers_forbid_proxies_to_buffer(
    voiced: httpx.AsyncClient, auth: Headers
) -> None:
    answer = await stream(voiced, auth)
    assert answer.headers["x-accel-buffering"] == "no"
    assert "no-transform" in answer.headers["cache-control"]
    assert "content-length" not in answer.headers


async def test_hostile_text_is_spoken(client: httpx.AsyncClient, auth: Headers) -> None:
    text = "\u202eabc\u0001 5 < 6 " + "9" * 300 + " \u0645\u0631\u062d\u0628\u0627 \u4f60\u597d"
    lines = lines_of(await stream(client, auth, text=text, timestamps=True))
    unread = ["\u0645\u0631\u062d\u0628\u0627 \u4f60\u597d"]
    assert lines[-1] == {"type": "complete", "unread": unread}
