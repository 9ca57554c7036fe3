"""ElevenLabs' socket of recognition, over a transcriber that says what tests give it."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from models.audio import Pcm, encode_g711, float_to_pcm16
from tests.api.deepgram.test_streams import sentence
from tests.api.sockets.client import JsonClient, connect
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

HEARD = "Hello, World."


@pytest.fixture(autouse=True)
def hears_two_words(fake: FakeTranscriber) -> None:
    fake.answer = sentence


class LiveClient(JsonClient):
    """Sends audio, and reads events."""

    async def send(self, data: bytes = b"", **fields: Any) -> None:
        audio = base64.b64encode(data).decode()
        message = {"message_type": "input_audio_chunk", "audio_base_64": audio}
        await self.socket.send(json.dumps({**message, "sample_rate": 16_000, **fields}))

    async def say(self, *pieces: Pcm) -> None:
        data = float_to_pcm16(np.concatenate(pieces))
        for at in range(0, len(data), 3200):
            await self.send(data[at : at + 3200], commit=False)

    async def until(self, kind: str) -> list[dict[str, Any]]:
        events = [await self.receive()]
        while events[-1]["message_type"] != kind:
            events.append(await self.receive())
        return events


@asynccontextmanager
async def listening(server: SocketServer, **query: Any) -> AsyncIterator[LiveClient]:
    url = f"ws://{server.address}/v1/speech-to-text/realtime?{urlencode(query, doseq=True)}"
    async with connect(url, additional_headers={"xi-api-key": server.key}) as socket:
        client = LiveClient(socket)
        started = await client.receive()
        assert started["message_type"] == "session_started" and started["session_id"]
        yield client


async def test_a_segment_ends_where_the_client_commits_it_and_may_be_empty(
    stt_server: SocketServer,
) -> None:
    async with listening(stt_server, include_timestamps="true") as client:
        await client.say(loud(1.5), quiet(4), loud(1))  # two utterances
        await client.send(commit=True)
        events = await client.until("committed_transcript_with_timestamps")
        last, timed = events[-2:]
        assert {one["message_type"] for one in events[:-2]} == {"partial_transcript"}
        assert last["message_type"] == "committed_transcript" and last["text"] == timed["text"]
        words = [one["text"] for one in timed["words"] if one["type"] == "word"]
        assert words == last["text"].split() == [*HEARD.split(), *HEARD.split()]
        assert timed["language_code"] == "en"
        await client.send(commit=True)
        assert (await client.until("committed_transcript"))[-1]["text"] == ""


async def test_silence_commits_where_the_client_asks_for_it(stt_server: SocketServer) -> None:
    query = {"commit_strategy": "vad", "vad_silence_threshold_secs": 0.5, "keyterms": ["A", "B"]}
    async with listening(stt_server, include_language_detection="true", **query) as client:
        await client.say(loud(1.5), quiet(1), loud(1), quiet(1))
        for _ in range(2):
            events = await client.until("committed_transcript_with_timestamps")
            assert events[-1]["text"] == HEARD and events[-1]["words"] is None


async def test_telephone_audio_is_taken(stt_server: SocketServer) -> None:
    async with listening(stt_server, audio_format="ulaw_8000") as client:
        data = encode_g711(loud(1)[::2], "mulaw")
        await client.send(data, commit=True)
        assert (await client.until("committed_transcript"))[-1]["text"]


async def test_audio_in_letters_beyond_ascii_is_an_input_error(stt_server: SocketServer) -> None:
    async with listening(stt_server) as client:
        for audio in ("é", "\u2028", "A", "===="):
            await client.send(audio_base_64=audio)
            error = (await client.until("input_error"))[-1]
            assert error["error"] == "audio_base_64: is not base64"
        await client.say(quiet(0.2))
        await client.send(commit=True)
        await client.until("committed_transcript")
