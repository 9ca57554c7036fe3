"""Cartesia's speech to text, over scripted engines."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest

from models.audio import encode_g711, float_to_pcm16, pcm16_to_float
from models.stt.base import Transcript, TranscriptionRequest
from tests.api.deepgram.socket_client import DeepgramClient
from tests.api.deepgram.test_recordings import SCRIPT, TALK
from tests.api.money import Books
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import (
    FakeTranscriber,
    ScriptedTurnDetector,
    loud,
    quiet,
    transcript,
)

Headers = dict[str, str]
MANUAL = "/cartesia/stt/websocket"
TURNS = "/cartesia/stt/turns/websocket"
QUERY: dict[str, Any] = {"model": "ink-2", "encoding": "pcm_s16le", "sample_rate": 16_000}


async def transcribe(
    client: httpx.AsyncClient, auth: Headers, data: bytes = TALK, **fields: Any
) -> httpx.Response:
    names = ("encoding", "sample_rate")
    query: dict[str, Any] = {name: fields.pop(name) for name in names if name in fields}
    form = {"model": "ink-whisper", **fields}
    return await client.post(
        "/cartesia/stt", headers=auth, params=query, data=form, files={"file": ("a", data)}
    )


async def test_a_recording_gives_its_text_and_words_on_request(
    client: httpx.AsyncClient, auth: Headers, books: Books
) -> None:
    granularity: dict[str, Any] = {"timestamp_granularities[]": ["word"]}
    answer = await transcribe(client, auth, **granularity, language="en")
    assert answer.status_code == 200 and "X-Ignored-Fields" not in answer.headers
    body = answer.json()
    assert (body["type"], body["text"], body["language"]) == ("transcript", SCRIPT, "en")
    assert body["request_id"] == answer.headers["X-Request-Id"] and body["duration"] == 6
    assert [word["word"] for word in body["words"]] == SCRIPT.split()
    assert set(body["words"][0]) == {"word", "start", "end"}
    assert "words" not in (await transcribe(client, auth)).json()
    assert (await books.charged("stt"))[0] == 12_000


@pytest.mark.in_process  # after a lossy codec Silero does not take the tone for speech
@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_s32le", "pcm_mulaw", "pcm_alaw"])
async def test_raw_samples_need_their_rate(
    client: httpx.AsyncClient, auth: Headers, encoding: str
) -> None:
    pcm = pcm16_to_float(TALK[44:])
    if encoding == "pcm_s32le":
        data = (pcm * 2.0**31).astype(np.int32).tobytes()
    elif encoding == "pcm_s16le":
        data = float_to_pcm16(pcm)
    else:
        data = encode_g711(pcm, "mulaw" if encoding == "pcm_mulaw" else "alaw")
    answer = await transcribe(client, auth, data, encoding=encoding, sample_rate=16_000)
    assert (answer.json()["text"], answer.json()["duration"]) == (SCRIPT, 6)
    refused = await transcribe(client, auth, data, encoding=encoding)
    assert refused.status_code == 400 and refused.json()["message"].startswith("sample_rate: ")
    wrong = await transcribe(client, auth, data, encoding="pcm_f16le", sample_rate=8000)
    assert wrong.json()["message"].startswith("encoding: ") and wrong.json()["title"]


class CartesiaListener(DeepgramClient):
    """Sends audio and commands, and reads events."""

    async def command(self, text: str) -> None:
        await self.socket.send(text)


@asynccontextmanager
async def listening(
    server: SocketServer, path: str, **query: Any
) -> AsyncIterator[CartesiaListener]:
    url = f"ws://{server.address}{path}?{urlencode(QUERY | query, doseq=True)}"
    async with connect(url, additional_headers={"X-API-Key": server.key}) as socket:
        yield CartesiaListener(socket)


def numbered(number: int, request: TranscriptionRequest) -> Transcript:
    return transcript(number, request, "Shall we go?")


async def test_the_client_finalizes_utterances_whose_texts_join(
    stt_server: SocketServer, fake: FakeTranscriber
) -> None:
    fake.answer = numbered
    texts = []
    async with listening(stt_server, MANUAL, keyterm=["Kokoro", "Supertonic"]) as client:
        for command in ("finalize", json.dumps("finalize")):
            await client.send_pcm(loud(1), quiet(0.3))
            await client.command(command)
            events = await client.until("flush_done")
            finals = [event for event in events if event.get("is_final")]
            texts += [event["text"] for event in finals]
        await client.command("finalize")  # of nothing
        (flushed,) = await client.until("flush_done")
        await client.command("sing")
        (error,) = await client.until("error")
        await client.send_pcm(loud(1))
        await client.command("close")
        rest, code, _ = await client.rest()
    assert "".join(texts) == "Shall we go? Shall we go?"
    assert set(finals[0]) == {
        *("type", "request_id", "text", "is_final", "duration", "language", "words")
    }
    (columns,) = finals[0]["words"]
    assert set(columns) == {"words", "start", "end"}
    assert len(columns["words"]) == len(columns["start"]) == len(columns["end"]) > 0
    assert (error["status_code"], error["error_code"]) == (400, "validation_error")
    assert rest[-1] == {"type": "done", "request_id": flushed["request_id"]} and code == 1000
    assert [event["text"] for event in rest if event.get("is_final")] == [" Shall we go?"]


async def test_turns_start_grow_end_and_can_be_configured(
    turn_server: SocketServer, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> None:
    fake.answer = numbered
    detector.answers = [0.7, 0.9]  # probably the end, then not; then the end
    async with listening(turn_server, TURNS) as client:
        (connected,) = await client.until("connected")
        await client.send_pcm(loud(1), quiet(0.3))
        first = await client.until("turn.eager_end")
        await client.send_pcm(loud(1), quiet(0.2))
        second = await client.until_in_silence("turn.end")
        await client.send("config", turn={"end_threshold": 0.7})
        (error,) = await client.until("error")
        await client.send("config", turn={"end_threshold": 0.5, "eager_end_threshold": None})
        await client.send("close")
        rest, code, _ = await client.rest()
    assert [event["type"] for event in first[:2]] == ["turn.start", "turn.update"]
    kinds = [event["type"] for event in second if event["type"] != "turn.update"]
    assert kinds[0] == "turn.resume" and kinds[-1] == "turn.end"
    assert second[-1]["transcript"].endswith("Shall we go?")
    assert "turn_end_threshold: " in error["message"] and (rest, code) == ([], 1000)
    assert {event["request_id"] for event in (*first, *second)} == {connected["request_id"]}
