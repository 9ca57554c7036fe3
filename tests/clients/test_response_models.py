"""The types of OpenAI's, Deepgram's, ElevenLabs', Cartesia's and AssemblyAI's SDKs."""

from pathlib import Path

from tests.api.local_server import Server
from tests.clients.conftest import english_voice
from tests.clients.registry_clients import RegistryClients

SCRIPT = Path(__file__).with_name("response_models.py")


def test_all_answers_and_events_have_the_fields_that_the_sdks_require(
    registry_clients: RegistryClients, tone_server: Server, recording: Path
) -> None:
    arguments = tone_server.url, tone_server.key, english_voice(tone_server), str(recording)
    faults = registry_clients.run(SCRIPT, *arguments)
    assert {row: each for row, each in faults.items() if each} == {}
