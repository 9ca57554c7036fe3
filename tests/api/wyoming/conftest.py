"""The listener of Wyoming over engines without weights, and a client that writes what it likes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from api.services import Services
from deployments.gateway.wyoming import WyomingListener
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.money import Books
from tests.api.replaced import with_listening
from tests.api.sockets.conftest import upgrade
from tests.patience import PATIENCE_S, until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, transcript

Event = tuple[str, dict[str, Any], bytes]


class WyomingClient:
    """One connection, whose header names the version of a package."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str | None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.kinds: set[str] = set()  # of the events received
        self._version = version

    async def send(self, kind: str, payload: bytes = b"", /, **data: Any) -> None:
        """As the package writes events."""
        body = json.dumps(data, ensure_ascii=False).encode() if data else b""
        header = {"type": kind, "version": self._version, "data_length": len(body)}
        header |= {"payload_length": len(payload)} if payload else {}
        self.writer.write(json.dumps(header).encode() + b"\n" + body + payload)
        await self.writer.drain()

    async def receive(self) -> Event | None:
        """None at the end of the connection."""
        line = await self.reader.readline()
        if not line:
            return None
        header = json.loads(line)
        body = await self.reader.readexactly(header.get("data_length", 0))
        payload = await self.reader.readexactly(header.get("payload_length", 0))
        self.kinds.add(header["type"])
        return header["type"], json.loads(body or b"{}"), payload

    async def until(self, *kinds: str) -> list[Event]:
        """All events up to the first of these kinds."""
        events: list[Event] = []
        while not events or events[-1][0] not in kinds:
            event = await self.receive()
            assert event is not None, [one[0] for one in events]
            events.append(event)
        return events

    async def until_end(self) -> list[Event]:
        """All events until the server ends the connection."""
        events: list[Event] = []
        while (event := await self.receive()) is not None:
            events.append(event)
        return events


@dataclass(frozen=True)
class Home:
    """A listener on the test's event loop."""

    services: Services
    listener: WyomingListener
    books: Books
    heard: FakeTranscriber

    @asynccontextmanager
    async def client(self, version: str | None = "1.10.2") -> AsyncIterator[WyomingClient]:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*self.listener.address)
            try:
                yield WyomingClient(reader, writer, version)
            finally:
                writer.close()

    async def units(self, service: str) -> int:
        """All that was charged for, after all connections."""
        await self.until_empty()
        entries = [one for one in await self.books.entries() if one.kind == "capture"]
        return sum(one.units for one in entries if one.service == service)

    async def until_empty(self) -> None:
        """Waits until no session is open."""
        await until(lambda: not self.services.infrastructure.sockets.live)


@asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[Home]:
    """Transcribes with a fake, speaks tones and echoes."""
    heard = FakeTranscriber()
    services = with_listening(local_services(local_settings(folder)), heard)
    try:
        async with listening(services, heard) as running:
            yield running
    finally:
        services.infrastructure.database.close()


@asynccontextmanager
async def listening(services: Services, heard: FakeTranscriber) -> AsyncIterator[Home]:
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    await services.infrastructure.database.run(upgrade)
    principal = await services.platform.accounts.authenticator.authenticate(key)
    listener = WyomingListener(services, "127.0.0.1", 0, key)
    await listener.start()
    try:
        books = Books(services, principal.workspace_id, principal.key_id)
        yield Home(services, listener, books, heard)
    finally:
        await listener.stop(services.infrastructure.sockets.drain(0, 1001, "the test is over"))
        await services.platform.billing.wait_for_settlements()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    """One for the tests of a module, which put back what they change."""
    async with serve(tmp_path_factory.mktemp("wyoming")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def own_home(tmp_path: Path) -> AsyncIterator[Home]:
    """One for a test that leaves it useless."""
    async with serve(tmp_path) as running:
        yield running


@pytest.fixture
def heard(home: Home) -> FakeTranscriber:
    """The recogniser, as if it had heard nothing yet."""
    home.heard.requests.clear()
    home.heard.errors.clear()
    home.heard.answer = transcript
    return home.heard


@asynccontextmanager
async def without_credit(home: Home) -> AsyncIterator[None]:
    await home.until_empty()
    await home.books.set_credit(0)
    yield
    await home.until_empty()
    await home.books.set_credit(10**9)
