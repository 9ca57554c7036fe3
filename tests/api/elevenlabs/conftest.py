"""A server for the tests of a module, and a client with ElevenLabs' header."""

from collections.abc import Iterator

import httpx
import pytest

from tests.api.local_server import patient_client, serve_local


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serve_local(tmp_path_factory.mktemp("elevenlabs")) as running:
        headers = {"xi-api-key": running.key}
        with patient_client(running.url, headers) as opened:
            yield opened


@pytest.fixture
def xi(auth: dict[str, str]) -> dict[str, str]:
    """As ElevenLabs' clients send a key."""
    return {"xi-api-key": auth["Authorization"].removeprefix("Bearer ")}
