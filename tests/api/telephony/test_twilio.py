"""Telephone calls over Twilio's Media Streams, with the messages that Twilio documents."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from models.audio import AudioChunk, Pcm, decode_g711
from pipelines.audio.encode.formats import open_encoder
from tests.api.money import Books
from tests.api.openai.realtime.conftest import heard, server
from tests.api.openai.realtime.test_conversation import LONG, says
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber, loud, quiet

__all__ = ["heard", "server"]  # fixtures
STREAM, PATH = "MZ0123456789abcdef0123456789abcdef", "/telephony/twilio"
L16 = {"streamSid": STREAM, "mediaFormat": {"encoding": "audio/x-l16"}}
FRAME = 160  # bytes of mu-law, 20 ms
TEXT = "One two three."
Message = dict[str, Any]
Law = Literal["mulaw", "alaw"]


class Call:
    """Twilio's side of a stream. It plays at once what it is sent, up to `plays_ms`."""

    def __init__(self, socket: ClientConnection, law: Law = "mulaw") -> None:
        self.socket = socket
        self.law = law
        self.returns_marks = True
        self.messages: list[Message] = []
        self.plays_ms: float = float("inf")
        self.played = b""
        self._waiting: list[Message] = []  # marks whose audio was not played yet

    async def send(self, event: str, **body: Any) -> None:
        await self.socket.send(json.dumps({"event": event, **body}))

    async def start(self, **parameters: str) -> None:
        await self.send("connected", protocol="Call", version="1.0.0")
        start = {
            "accountSid": "AC0",
            "streamSid": STREAM,
            "callSid": "CA0",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": f"audio/x-{self.law}", "sampleRate": 8000, "channels": 1},
            "customParameters": parameters,
        }
        await self.send("start", sequenceNumber="1", start=start, streamSid=STREAM)

    async def speak(self, *pieces: Pcm) -> None:
        for pcm in pieces:
            encoder = open_encoder(self.law, 8000)
            data = b"".join([*encoder.encode(AudioChunk(pcm, 16_000)), *encoder.flush()])
            for number, at in enumerate(range(0, len(data), FRAME)):
                payload = base64.b64encode(data[at : at + FRAME]).decode()
                media = {
                    "track": "inbound",
                    "chunk": str(number + 1),
                    "timestamp": str(number * 20),
                    "payload": payload,
                }
                await self.send("media", sequenceNumber="4", media=media, streamSid=STREAM)

    async def receive(self) -> Message:
        message: Message = json.loads(await self.socket.recv())
        self.messages.append(message)
        match message["event"]:
            case "media":
                self.played += base64.b64decode(message["media"]["payload"])
            case "mark":
                self._waiting.append(message["mark"])
                if len(self.played) / 8 <= self.plays_ms:
                    await self._return_marks()
            case "clear":
                await self._return_marks()  # as Twilio does
        return message

    async def until(self, event: str) -> Message:
        while (message := await self.receive())["event"] != event:
            assert message["event"] != "error", message
        return message

    async def until_quiet(self) -> None:
        """Until nothing has come for a while. A pause of this machine is one wait of several, after
        which comes what was sent meanwhile."""
        waits = 0
        while waits < 4:
            try:
                async with asyncio.timeout(0.4):
                    await self.receive()
                waits = 0
            except TimeoutError:
                waits += 1

    async def _return_marks(self) -> None:
        for mark in self._waiting if self.returns_marks else ():
            await self.send("mark", sequenceNumber="5", streamSid=STREAM, mark=mark)
        self._waiting.clear()


@asynccontextmanager
async def call(
    server: SocketServer, law: Law = "mulaw", /, **parameters: str
) -> AsyncIterator[Call]:
    async with asyncio.timeout(PATIENCE_S), connect(server.url(PATH)) as socket:
        made = Call(socket, law)
        await made.start(**parameters)
        yield made


@pytest.fixture
async def books(server: SocketServer) -> Books:
    made = await server.books()
    await made.add_webhook("agent.session.completed")
    return made


async def record(server: SocketServer, books: Books) -> Message:
    """The data of the event of the only call."""
    await server.until_empty()
    (event,) = await books.events()
    data: Message = event["data"]
    return data


async def test_a_caller_is_answered_in_mu_law_with_marks(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    heard.answer = says(TEXT)
    async with call(server) as made:
        await made.speak(loud(1.0), quiet(0.8))
        await made.until("media")
        await made.until_quiet()
        await made.send("stop", sequenceNumber="9", stop={"callSid": "CA0"}, streamSid=STREAM)
        await made.socket.wait_closed()
        assert made.socket.close_code == 1000
    assert {one["streamSid"] for one in made.messages} == {STREAM}
    kinds = [one["event"] for one in made.messages]
    assert kinds == ["media", "mark"] * (len(kinds) // 2)
    assert 0.5 < len(made.played) / 8000 < 5
    data = await record(server, books)
    assert [(one["role"], one["text"]) for one in data["transcript"]] == [
        ("user", TEXT),
        ("assistant", TEXT),
    ]
    assert data["usage"]["seconds"] == pytest.approx(1.8, abs=0.01) and data["usage"][
        "characters"
    ] == len(TEXT)


async def test_barge_in_clears_the_audio_and_forgets_what_was_not_played(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    heard.answer = says(LONG)
    async with call(server) as made:
        made.plays_ms = 500
        await made.speak(loud(1.0), quiet(0.8))
        for _ in range(8):
            await made.until("media")
        heard.answer = says("Wait, stop please.")
        await made.speak(loud(0.8), quiet(0.8))
        await made.until("clear")
        made.plays_ms = float("inf")
        await made.until("media")
        await made.until_quiet()
    _, cut, user, answer = (await record(server, books))["transcript"]
    assert cut["role"] == "assistant" and 0.4 <= cut["duration"] <= 0.6
    assert LONG.startswith(cut["text"]) and len(cut["text"]) < 30
    assert user["text"] == answer["text"] == "Wait, stop please."


async def test_barge_in_without_marks_forgets_what_was_not_played_by_the_clock(
    server: SocketServer, heard: FakeTranscriber, books: Books
) -> None:
    """Other services with Twilio's protocol may return no marks."""
    heard.answer = says(LONG)
    async with call(server) as made:
        made.returns_marks = False
        await made.speak(loud(1.0), quiet(0.8))
        while len(made.played) < 1.5 * 8000:
            await made.until("media")
        heard.answer = says("Wait, stop please.")
        await made.speak(loud(0.8), quiet(0.8))
        await made.until("clear")
        sent_s = len(made.played) / 8000
        await made.until("media")
        await made.until_quiet()
    _, cut, _, _ = (await record(server, books))["transcript"]
    assert cut["role"] == "assistant" and sent_s - 0.5 <= cut["duration"] <= sent_s
    assert LONG.startswith(cut["text"])


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
async def test_a_call_speaks_and_hears_the_law_of_its_network(
    server: SocketServer, heard: FakeTranscriber, law: Law
) -> None:
    heard.answer = says(TEXT)
    async with call(server, law) as made:
        await made.speak(loud(1.0), quiet(0.8))
        await made.until("media")
        await made.until_quiet()
    for audio in (decode_g711(made.played, law), heard.requests[-1].pcm):
        power = np.abs(np.fft.rfft(audio)) ** 2
        assert power.max() > 0.2 * power.sum()  # a sine wave; the wrong law distorts it


async def test_a_call_in_another_format_ends_with_the_reason(server: SocketServer) -> None:
    async with asyncio.timeout(PATIENCE_S), connect(server.url(PATH)) as socket:
        await socket.send(json.dumps({"event": "start", "start": L16}))
        assert "mediaFormat" in json.loads(await socket.recv())["message"]
        with pytest.raises(ConnectionClosed, match="1008"):
            await socket.recv()


async def test_parameters_choose_voice_and_instructions_and_that_the_agent_begins(
    server: SocketServer, books: Books
) -> None:
    voice, instructions = server.voice_id, "Be brief."
    parameters = {"voice": voice, "instructions": instructions, "speaks_first": "true"}
    async with call(server, save_chat="true", **parameters) as made:
        await made.until("media")
        await made.until_quiet()
    data = await record(server, books)
    (greeting,) = data["transcript"]
    assert greeting["role"] == "assistant" and data["chat_id"]


async def test_a_wrong_message_gets_an_error_and_the_call_goes_on(
    server: SocketServer, heard: FakeTranscriber
) -> None:
    heard.answer = says(TEXT)
    async with asyncio.timeout(PATIENCE_S), connect(server.url(PATH)) as socket:
        made = Call(socket)
        await made.send("dance")
        assert (await made.receive())["event"] == "error"
        await made.start()
        await made.send("dtmf", dtmf={"track": "inbound_track", "digit": "1"})
        await made.send("media", media={"track": "outbound", "payload": "?"})
        await made.send("media", media={"payload": "?"})
        assert "base64" in (await made.receive())["message"]
        await made.start()
        assert "already" in (await made.receive())["message"]
        await made.speak(loud(1.0), quiet(0.8))
        await made.until("media")


async def test_calls_pay_for_their_parts_and_end_without_credit(
    server: SocketServer, books: Books
) -> None:
    await books.set_credit(100)
    async with call(server) as made:
        await made.speak(quiet(3.0))
        assert "credit" in (await made.receive())["message"]
        await made.socket.wait_closed()
        assert made.socket.close_code == 4402


async def test_a_client_secret_in_the_path_stays_out_of_logs(
    server: SocketServer, heard: FakeTranscriber, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    heard.answer = says(TEXT)
    headers = {"Authorization": f"Bearer {server.key}"}
    async with httpx.AsyncClient(trust_env=False, headers=headers) as http:
        url = f"http://{server.address}/openai/v1/realtime/client_secrets"
        made = await http.post(url, json={"session": {"type": "realtime", "save_chat": True}})
        secret = made.json()["value"]
    url = f"ws://{server.address}{PATH}/{secret}"
    async with asyncio.timeout(PATIENCE_S), connect(url) as socket:
        stream = Call(socket)
        await stream.start()
        await stream.speak(loud(1.0), quiet(0.8))
        await stream.until("media")
    await server.until_empty()
    logged = [(one.getMessage(), one.__dict__.get("path")) for one in caplog.records]
    assert ("socket", PATH) in logged and secret not in str(
        [one.__dict__ for one in caplog.records if one.name.startswith(("api", "deployments"))]
    )


@pytest.mark.parametrize("name", ["/" + "9" * 5000, "/-1", "/\u0663", "/1e9", "x" * 100_000])
async def test_a_mark_that_is_not_ours_changes_nothing(
    server: SocketServer, heard: FakeTranscriber, name: str
) -> None:
    heard.answer = says(TEXT)
    async with call(server) as made:
        await made.send("mark", mark={"name": name})
        if len(name) > 200:
            assert "mark.name" in (await made.receive())["message"]
        await made.speak(loud(1.0), quiet(0.8))
        await made.until("media")
