"""Readers of streams that stall, over a real socket."""

import asyncio
import json
import socket
from collections.abc import Callable

import pytest

from api.app import create_app
from api.services import Services
from configs.schema.voices import VoiceRef, VoicesConfig
from pipelines.tts.pipeline import SpeechPipeline
from tests.api.money import Books
from tests.api.replaced import with_synthesis
from tests.deployments.gateway.raw_http import admission, serving
from tests.patience import PATIENCE_S
from tests.pipelines.stt.voiced import VoicedSpeaker

TEXT = "Speech that is sent, and that its client does not read. " * 80


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
    pipeline = SpeechPipeline({"one": speaker}, voices)
    scheduler = pipeline._schedulers["one"]
    named = "input" if path.startswith("/openai") else "text"
    formats = {"output_format": "wav", "response_format": "wav"}
    body = json.dumps({named: TEXT, **formats}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: {auth['Authorization']}\r\nContent-Length: {len(body)}\r\n\r\n"
    app = create_app(with_synthesis(services, pipeline))
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
    assert 0 < units < len(TEXT)
