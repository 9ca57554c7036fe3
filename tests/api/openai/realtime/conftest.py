"""A server whose recogniser hears what a test sets, and the books of its first workspace."""

import pytest

from tests.api.money import Books
from tests.api.sockets.conftest import SocketServer
from tests.pipelines.stt.listening_doubles import FakeTranscriber


@pytest.fixture
def heard(fake: FakeTranscriber) -> FakeTranscriber:
    """Hears nothing but what a test sets."""
    return fake


@pytest.fixture
def server(stt_server: SocketServer) -> SocketServer:
    return stt_server


@pytest.fixture
async def books(server: SocketServer) -> Books:
    return await server.books()
