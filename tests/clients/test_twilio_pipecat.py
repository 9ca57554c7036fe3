"""A telephone call through Pipecat's serializer for Twilio, as it is published."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.stt.base import Transcript, TranscriptionRequest
from tests.api.local_server import Server, local_settings, serve_services
from tests.api.local_services import local_services
from tests.api.replaced import with_listening
from tests.clients.conftest import socket_url
from tests.clients.registry_clients import RegistryClients
from tests.pipelines.stt.listening_doubles import FakeTranscriber, transcript

SAID = "This is a rather long sentence, which the agent says again. " * 6


@pytest.fixture
def phone_server(tmp_path: Path) -> Iterator[Server]:
    """Hears the same sentence in everything that is loud."""

    def hear(number: int, request: TranscriptionRequest) -> Transcript:
        return transcript(number, request, f"{number}. {SAID}")

    heard = FakeTranscriber()
    heard.answer = hear
    with serve_services(with_listening(local_services(local_settings(tmp_path)), heard)) as running:
        yield running


def test_pipecat_takes_a_call_that_is_answered_and_interrupted(
    registry_clients: RegistryClients, phone_server: Server
) -> None:
    script = Path(__file__).parent / "twilio_pipecat.py"
    seen = registry_clients.run(script, socket_url(phone_server, "/telephony/twilio"))
    assert seen["events"] == ["clear", "mark", "media"]
    assert seen["rates"] == [16_000] and seen["code"] == 1000
    assert 1.5 <= seen["cleared_s"] < 10
