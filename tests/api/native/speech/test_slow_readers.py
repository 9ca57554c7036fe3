"""Readers of streams that stall, over a real socket."""

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from math import ceil

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.app import create_app
from api.services import Services
from configs.schema.voices import VoiceRef, VoicesConfig
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from pipelines.tts.session import MESSAGE_S
from pipelines.tts.shaping import SpokenChunk
from tests.api.http.test_slow_bodies import limited
from tests.api.money import Books
from tests.api.replaced import with_synthesis
from tests.deployments.gateway.raw_http import admission, serving
from tests.patience import PATIENCE_S, until
from tests.pipelines.stt.voiced import VOICE, VoicedSpeaker

TEXT = "Speech that is sent, and that its client does not read. " * 40


class Recorded(SpeechPipeline):
    """Records what each chunk that it gave costs, with those before it, in characters, and how many
    messages it is sent in: a snippet that waited for the next chunk makes it longer than one."""

    given: list[int]
    messages: int

    async def stream(self, plan: SpeechPlan) -> AsyncGenerator[SpokenChunk, None]:
        self.given, self.messages = [], 0
        async with aclosing(super().stream(plan)) as chunks:
            async for chunk in chunks:
                self.given.append(chunk.text_end)
                self.messages += ceil(chunk.audio.duration_s / MESSAGE_S)
                yield chunk


class Counted:
    """An application, and how many parts of its response were sent, with the one in progress."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.begun = self.sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def count(message: Message) -> None:
            self.begun += message["type"] == "http.response.start"
            self.sent += bool(message.get("body"))
            await send(message)

        await self._app(scope, receive, count)


def slow_reader(port: int, path: str, auth: dict[str, str]) -> socket.socket:
    """A client that asks for the speech of TEXT, uncompressed, and reads nothing."""
    named = "input" if path.startswith("/openai") else "text"
    inworld = {"voiceId": VOICE.voice_id, "audioConfig": {"audioEncoding": "LINEAR16"}}
    others = inworld if path.startswith("/tts/") else {}
    formats = {"output_format": "wav", "response_format": "wav"}
    body = json.dumps({named: TEXT, **formats, **others}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: {auth['Authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(head.encode() + body)
    return client


@pytest.mark.parametrize(
    ("path", "is_free"),
    [
        pytest.param("/tts-synthesize", True, marks=pytest.mark.slow),
        pytest.param("/tts/v1/voice", True, marks=pytest.mark.slow),
        ("/tts/v1/voice:stream", False),
    ],
)
async def test_slow_readers_of_whole_answers_leave_their_places_to_others(
    path: str,
    is_free: bool,
    services: Services,
    auth: dict[str, str],
    other_auth: dict[str, str],
) -> None:
    """A stream keeps its place: it is still being synthesised."""
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    pipeline = SpeechPipeline({"one": VoicedSpeaker(sizes=(9600,))}, voices)
    narrow = limited(
        with_synthesis(services, pipeline), work_per_core={path: 2}, lasting_per_core={path: 2}
    )
    places = narrow.infrastructure.admission._kinds[path]
    app = Counted(create_app(narrow))
    async with serving(app) as listener, AsyncExitStack() as stack:
        for number in (1, 2):
            stack.enter_context(slow_reader(listener.port, path, auth))
            await until(lambda number=number: app.begun == number)  # type: ignore[misc]
        assert places._count == (0 if is_free else 2)
        url = f"http://127.0.0.1:{listener.port}"
        client = httpx.AsyncClient(base_url=url, timeout=PATIENCE_S)
        await stack.enter_async_context(client)
        asked = {"text": "Hello.", "voiceId": VOICE.voice_id}
        answers = [await client.post(path, json=asked, headers=other_auth) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {200}
        more = slow_reader(listener.port, path, auth)  # beyond the answers that are sent so
        stack.enter_context(more)
        if is_free:
            await until(lambda: app.begun == 6)
            assert places._count == 1
    assert places._count == 0


@pytest.mark.parametrize(
    "path",
    [
        "/tts-stream",
        pytest.param("/openai/v1/audio/speech", marks=pytest.mark.slow),
        "/tts/v1/voice:stream",
    ],
)
async def test_a_stalled_stream_is_idle_then_ends_and_costs_its_part(
    path: str, services: Services, auth: dict[str, str], books: Books
) -> None:
    speaker = VoicedSpeaker(sizes=(9600,))
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    pipeline = Recorded({"one": speaker}, voices)
    scheduler = pipeline._schedulers["one"]
    app = Counted(create_app(with_synthesis(services, pipeline)))
    async with serving(app, admission(send_timeout_s=2.0)) as listener:
        with slow_reader(listener.port, path, auth):
            await until(lambda: len(scheduler.streams) == 1)
            (stream,) = scheduler.streams
            await until(lambda: stream.is_stalled)
            assert not scheduler.busy
            await until(lambda: not scheduler.streams)
    assert speaker.in_flight == 0
    units, _ = await books.charged("tts")
    # A header may be one, too.
    assert len(pipeline.given) <= app.sent <= pipeline.messages + 1
    assert 0 < units == pipeline.given[-1] < len(TEXT)
