"""The servers of the socket tests, for Deepgram's paths."""

from collections.abc import AsyncIterator

import pytest

from api.services import Services
from tests.api.replaced import with_listening, with_speech
from tests.api.sockets.conftest import (
    SocketServer,
    fake,
    plain,
    serve,
    server,
    shared_server,
    stt_server,
)
from tests.pipelines.stt.listening_doubles import FakeTranscriber, ScriptedTurnDetector

__all__ = ["detector", "fake", "plain", "server", "shared_server", "stt_server", "turn_server"]


@pytest.fixture
def detector() -> ScriptedTurnDetector:
    return ScriptedTurnDetector()


@pytest.fixture
async def turn_server(
    plain: Services, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> AsyncIterator[SocketServer]:
    services = with_listening(plain, fake)
    live = services.speech.live_transcription
    live.turn_detector = lambda: detector
    async with serve(with_speech(services, live_transcription=live)) as running:
        yield running
