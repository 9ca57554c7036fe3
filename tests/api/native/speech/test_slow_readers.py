"""Readers of streams that stall, over a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.app import create_app
from api.services import Services
from configs.schema.voices import VoiceRef, VoicesConfig
from pipelines.tts.pipeline import SpeechPipeline, SpeechPlan
from pipelines.tts.shaping import SpokenChunk
from tests.api.money import Books
from tests.api.replaced import with_synthesis
from tests.deployments.gateway.raw_http import admission, serving
from tests.patience import PATIENCE_S
from tests.pipelines.stt.voiced import VoicedSpeaker

TEXT = "Speech that is sent, and that its client does not read. " * 80


class Recorded(SpeechPipeline):
    """Records what each chunk that it gave costs, with those before it: characters."""

    given: list[int]

    async def stream(self, plan: SpeechPlan) -> AsyncGenerator[SpokenChunk, None]:
        self.given = []
        async with aclosing(super().stream(plan)) as chunks:
            async for chunk in chunks:
                self.given.append(chunk.text_end)
                yield chunk


class Counted:
    """An application, and how many parts of its response were sent, with the one in progress."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.sent = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def count(message: Message) -> None:
            self.sent += bool(message.get("body"))
            await send(message)

        await self._app(scope, receive, count)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("path", ["/tts-stream", "/openai/v1/audio/speech"])
async def test_a_stalled_stream_is_not_busy_then_ends_and_costs_what_was_sent(
    path: str, services: Services, auth: dict[str, str], books: Books
) -> None:
    speaker = VoicedSpeaker(sizes=(9600,))
    voices = VoicesConfig(defaults={"en": VoiceRef(engine="fake", key="v")})
    pipeline = Recorded({"one": speaker}, voices)
    scheduler = pipeline._schedulers["one"]
    named = "input" if path.startswith("/openai") else "text"
    formats = {"output_format": "wav", "response_format": "wav"}
    body = json.dumps({named: TEXT, **formats}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: {auth['Authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
    app = Counted(create_app(with_synthesis(services, pipeline)))
    async with serving(app, admission(send_timeout_s=2.0)) as listener:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", listener.port))
            client.sendall(head.encode() + body)
            await until(lambda: len(scheduler.streams) == 1)
            (stream,) = scheduler.streams
            await until(lambda: stream.is_stalled)
            assert scheduler.busy == scheduler.starving == 0
            await until(lambda: not scheduler.streams)
    assert speaker.in_flight == 0
    units, _ = await books.charged("tts")
    assert len(pipeline.given) <= app.sent <= len(pipeline.given) + 1  # perhaps with a header
    assert 0 < units == pipeline.given[-1] < len(TEXT)
