"""The client of Home Assistant's protocol, as it is published in the package `wyoming`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from configs.settings import BRAND
from deployments.gateway.wyoming import WyomingListener
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.replaced import with_listening
from tests.clients.registry_clients import RegistryClients

SPOKEN_S = 73 * 0.06  # by the tone engine


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Of a listener in a thread."""
    plain = local_services(local_settings(tmp_path))
    services = with_listening(plain, plain.speech.live_transcription.transcriber)
    key = asyncio.run(services.platform.accounts.ensure_first_workspace())
    assert key is not None
    listener = WyomingListener(services, "127.0.0.1", 0, key)
    try:
        with start_blocking_portal(backend_options={"use_uvloop": True}) as portal:
            portal.call(listener.start)
            yield listener.address
            portal.call(listener.stop, services.infrastructure.sockets.drain(1, 1001, "the end"))
    finally:
        services.infrastructure.database.close()


def test_home_assistants_client_hears_speaks_and_talks(
    registry_clients: RegistryClients, address: tuple[str, int]
) -> None:
    script = Path(__file__).with_name("wyoming_client.py")
    seen = registry_clients.run(script, *map(str, address))
    assert seen["pong"] == "hello"
    assert seen["programs"] == [BRAND] * 3 and seen["streaming"] == [True] * 3
    assert seen["models"] == [1, 4, 1]
    assert seen["heard"] == {
        "text": "the quick brown fox",
        "language": "en",
        "chunks": "the quick brown fox",
    }
    for spoken in (seen["spoken"], seen["in_voice"], seen["streamed"]):
        assert spoken["width"] == 2 and spoken["seconds"] == pytest.approx(SPOKEN_S, rel=0.4)
    assert seen["streamed"]["early"] > 0  # audio came before the end of the text
    said = seen["said"]
    assert said["text"] == said["chunks"].strip() == "one two three"
    assert said["context"] == {"conversation_id": "c"}
    assert seen["failed"]["code"] == "voice_not_found"
