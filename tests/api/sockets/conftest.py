"""A server with engines that need no weights, and clients for its sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from fastapi import FastAPI
from sqlmodel import Session, select

from api.app import create_app
from api.services import Services
from db.accounts import Workspace
from deployments.gateway.listener import HttpListener
from tests.api import running_service
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.money import Books, books_of
from tests.api.replaced import with_listening, with_speech
from tests.api.sockets.client import SocketAddresses
from tests.patience import until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, ScriptedTurnDetector


@dataclass(frozen=True)
class SocketServer(SocketAddresses):
    """A server on the test's own event loop, so that a test can inspect its objects."""

    services: Services
    app: FastAPI
    listener: HttpListener
    key: str
    voice_id: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.port}"

    async def books(self) -> Books:
        """Of the workspace of `key`."""
        return await books_of(self.services, {"Authorization": f"Bearer {self.key}"})

    async def until_empty(self) -> None:
        """Waits until no session is open and no lease of the plan's limits is held."""
        infrastructure = self.services.infrastructure
        await until(lambda: not (infrastructure.sockets.live or infrastructure.limits.held))


@asynccontextmanager
async def serve(services: Services) -> AsyncIterator[SocketServer]:
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    await services.infrastructure.database.run(upgrade)
    app = create_app(services)
    turns = services.infrastructure.admission.turns
    listener = HttpListener(app, "127.0.0.1", 0, turns=turns)
    await listener.start()
    try:
        voice_id = (await services.speech.synthesis.pipeline.directory.voices())[0].id
        yield SocketServer(services, app, listener, key, voice_id)
    finally:
        await listener.stop(services.infrastructure.sockets.drain(0, 1001, "the test is over"))


def upgrade(session: Session) -> None:
    """Puts every workspace on the plan with the most sockets."""
    for workspace in session.exec(select(Workspace)):
        workspace.plan = "enterprise"


@asynccontextmanager
async def serve_folder(folder: Path) -> AsyncIterator[SocketServer]:
    services = local_services(local_settings(folder))
    try:
        async with serve(services) as running:
            yield running
    finally:
        services.infrastructure.database.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SocketServer]:
    """One server for one test, which may change it."""
    async with serve_folder(tmp_path) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    """For tests with `pytest.mark.asyncio(loop_scope="module")`, which only open sockets."""
    async with serve_folder(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def fake() -> FakeTranscriber:
    return FakeTranscriber()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Services]:
    """Services before a test replaces some of them."""
    built = local_services(local_settings(tmp_path))
    yield built
    await built.platform.billing.wait_for_settlements()
    built.infrastructure.database.close()


@pytest.fixture
async def stt_server(plain: Services, fake: FakeTranscriber) -> AsyncIterator[SocketServer]:
    """A server that transcribes with `fake`."""
    async with serve(with_listening(plain, fake)) as running:
        yield running


@pytest.fixture
def detector() -> ScriptedTurnDetector:
    return ScriptedTurnDetector()


@pytest.fixture
async def turn_server(
    plain: Services, fake: FakeTranscriber, detector: ScriptedTurnDetector
) -> AsyncIterator[SocketServer]:
    """A server that transcribes with `fake` and ends turns where `detector` says."""
    services = with_listening(plain, fake)
    live = services.speech.live_transcription
    live.turn_detector = lambda: detector
    async with serve(with_speech(services, live_transcription=live)) as running:
        yield running


if running_service.URLS:
    globals()["shared_server"] = running_service.shared_server
