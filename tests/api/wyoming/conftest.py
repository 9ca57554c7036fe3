"""The listener of Wyoming over engines without weights, and a client that writes what it likes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.services import Services
from deployments.gateway.wyoming import WyomingListener
from pipelines.audio.decode.decoder import AudioDecoder
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.money import Books
from tests.api.replaced import with_listening
from tests.api.sockets.conftest import upgrade
from tests.patience import PATIENCE_S
from tests.pipelines.stt.listening_doubles import FakeTranscriber

Event = tuple[str, dict[str, Any], bytes]


class WyomingClient:
    """One connection, whose header names the version of a package."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str | None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._version = version

    async def send(self, kind: str, payload: bytes = b"", **data: Any) -> None:
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

    @asynccontextmanager
    async def client(self, version: str | None = "1.10.2") -> AsyncIterator[WyomingClient]:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(*self.listener.address)
            try:
                yield WyomingClient(reader, writer, version)
            finally:
                writer.close()

    async def until_empty(self) -> None:
        """Waits until no session is open."""
        async with asyncio.timeout(PATIENCE_S):
            while self.services.infrastructure.sockets.live:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serve(services: Services) -> AsyncIterator[Home]:
    key = await services.platform.accounts.ensure_first_workspace()
    assert key is not None
    await services.infrastructure.database.run(upgrade)
    principal = await services.platform.accounts.authenticator.authenticate(key)
    listener = WyomingListener(services, "127.0.0.1", 0, key)
    await listener.start()
    try:
        yield Home(services, listener, Books(services, principal.workspace_id, principal.key_id))
    finally:
        await listener.stop(services.infrastructure.sockets.drain(0, 1001, "the test is over"))
        await services.platform.billing.wait_for_settlements()


@pytest.fixture
def heard() -> FakeTranscriber:
    return FakeTranscriber()


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Services]:
    """Services before a test replaces some of them."""
    async with AudioDecoder() as decoder:
        built = local_services(local_settings(tmp_path), decoder)
        yield built
        built.infrastructure.database.close()


@pytest.fixture
async def home(plain: Services, heard: FakeTranscriber) -> AsyncIterator[Home]:
    """Transcribes with `heard`, speaks tones and echoes."""
    async with serve(with_listening(plain, heard)) as running:
        yield running
