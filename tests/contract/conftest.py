"""One server for the tests of a module, and a caller for each test that pays for itself."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from deployments.gateway.wyoming import WyomingListener
from models.audio import AudioChunk
from models.stt.base import Transcript, TranscriptionRequest
from models.tts.base import SynthesisRequest
from tests.api.conftest import errors_cost_no_time
from tests.api.local_server import local_settings
from tests.api.local_services import local_services
from tests.api.money import Books
from tests.api.replaced import with_listening
from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer, serve, upgrade
from tests.contract.dialect import Dialect, Event, Request, Socket
from tests.local_ports import LocalTTSModel
from tests.patience import PATIENCE_S, until
from tests.pipelines.stt.listening_doubles import FakeTranscriber, transcript

__all__ = ["errors_cost_no_time"]

_numbers = count()


def hear_words(number: int, request: TranscriptionRequest) -> Transcript:
    return transcript(number, request, "Shall we go?")


@dataclass(repr=False)
class Connection:
    """A client's end of a socket."""

    socket: ClientConnection
    kind: Socket

    async def send(self, *frames: str | bytes) -> None:
        for frame in frames:
            await self.socket.send(frame)

    async def receive(self) -> Event:
        """The next event; a binary frame is `{"type": "audio"}`."""
        async with asyncio.timeout(PATIENCE_S):
            frame = await self.socket.recv()
        if isinstance(frame, bytes):
            return {"type": "audio"}
        event: Event = json.loads(frame)
        return event

    async def until_read(self) -> None:
        """Returns when the server has read what was sent."""
        await (await self.socket.ping())

    def abort(self) -> None:
        self.socket.transport.abort()

    async def until_end(self) -> None:
        """Reads the events up to the end of the speech or of the transcripts, without an error."""
        try:
            while not self.kind.is_end(event := await self.receive()):
                assert not self.kind.fault(event), event
        except ConnectionClosed:
            assert self.socket.close_code == 1000

    async def until_fault(self) -> str:
        """The message of the next error."""
        while not (message := self.kind.fault(await self.receive())):
            pass
        return message

    async def until_closed(self) -> int | None:
        try:
            while True:
                await self.receive()
        except ConnectionClosed:
            return self.socket.close_code


class WyomingConnection(Connection):
    """A client's end of a TCP connection with Wyoming's protocol."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: Socket
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.kind = kind

    async def send(self, *frames: str | bytes) -> None:
        for frame in frames:
            assert isinstance(frame, bytes)
            self.writer.write(frame)
        await self.writer.drain()

    async def receive(self) -> Event:
        async with asyncio.timeout(PATIENCE_S):
            header = json.loads(await self.reader.readline())
            data = await self.reader.readexactly(header.get("data_length", 0))
            await self.reader.readexactly(header.get("payload_length", 0))
        return {"type": header["type"], **json.loads(data or b"{}")}

    async def until_read(self) -> None:
        await self.send(b'{"type": "ping"}\n')
        while (await self.receive())["type"] != "pong":
            pass

    def abort(self) -> None:
        self.writer.transport.abort()


@dataclass(repr=False)
class Caller:
    """A workspace with credit of its own, at a server that it shares."""

    server: SocketServer
    key: str
    books: Books
    http: httpx.AsyncClient
    recogniser: FakeTranscriber

    @property
    def voice(self) -> str:
        return self.server.voice_id

    async def post(
        self, dialect: Dialect, request: Request, key: str | None = None, **more: Any
    ) -> httpx.Response:
        """Sends a request with the caller's key, or another."""
        given = self.key if key is None else key
        headers = {**request.get("headers", {}), **(dialect.key(given) if given else {})}
        return await self.http.post(**{**request, **more, "headers": headers})

    @asynccontextmanager
    async def open(
        self,
        dialect: Dialect,
        socket: Socket,
        query: Mapping[str, str] | None = None,
        key: str | None = None,
        voice: str | None = None,
    ) -> AsyncIterator[Connection]:
        if not socket.path:
            async with self._open_wyoming(socket) as connection:
                yield connection
            return
        given = self.key if key is None else key
        url = f"ws://{self.server.address}{socket.address(voice or self.voice, query)}"
        headers = dialect.key(given) if given else {}
        async with connect(url, additional_headers=headers, close_timeout=1) as opened:
            yield Connection(opened, socket)

    @asynccontextmanager
    async def _open_wyoming(self, socket: Socket) -> AsyncIterator[Connection]:
        listener = WyomingListener(self.server.services, "127.0.0.1", 0, self.key)
        await listener.start()
        try:
            reader, writer = await asyncio.open_connection(*listener.address)
            yield WyomingConnection(reader, writer, socket)
            writer.close()
            await self.server.until_empty()
        finally:
            await listener.stop()

    async def new_key(self, *scopes: str) -> str:
        accounts = self.server.services.platform.accounts
        principal = await accounts.authenticator.authenticate(self.key)
        return (await accounts.create_key(principal, "another", list(scopes), None)).key

    def allow_requests(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lets so many requests pass in a minute."""
        limits = self.server.services.platform.request_limits
        plans = limits.plans
        plan = plans.limits_of("enterprise").model_copy(update={"requests_per_minute": number})
        monkeypatch.setattr(type(plans), "limits_of", lambda *_, **__: plan)

    def stop_engine_at(self, word: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
        """Lets the engine speak no text with the word; the event says that it has got there."""
        reached = asyncio.Event()
        synthesize = LocalTTSModel.synthesize

        async def stop(
            model: LocalTTSModel, request: SynthesisRequest
        ) -> AsyncGenerator[AudioChunk, None]:
            if word in request.text:
                reached.set()
                await asyncio.Event().wait()
            async for chunk in synthesize(model, request):
                yield chunk

        monkeypatch.setattr(LocalTTSModel, "synthesize", stop)
        return reached

    async def until_free(self) -> None:
        """Waits until no work of this server is in progress."""
        admission = self.server.services.infrastructure.admission
        await until(lambda: not admission._callers)

    async def units(self, service: str) -> int:
        """What was charged, once no socket is open."""
        await self.server.until_empty()
        return (await self.books.charged(service))[0]


@pytest.fixture(scope="module")
def recogniser() -> FakeTranscriber:
    """Hears the same words in any live speech."""
    return FakeTranscriber()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    tmp_path_factory: pytest.TempPathFactory, recogniser: FakeTranscriber
) -> AsyncIterator[SocketServer]:
    services = local_services(local_settings(tmp_path_factory.mktemp("contract")))
    try:
        async with serve(with_listening(services, recogniser)) as running:
            yield running
            await services.platform.billing.wait_for_settlements()
    finally:
        services.infrastructure.database.close()


@pytest_asyncio.fixture(loop_scope="module")
async def caller(server: SocketServer, recogniser: FakeTranscriber) -> AsyncIterator[Caller]:
    recogniser.answer = hear_words
    recogniser.requests.clear()
    recogniser.errors.clear()
    platform = server.services.platform
    email = f"caller{next(_numbers)}@example.com"
    token = (await platform.accounts.sign_up(email, "a long password", "", "")).token
    await server.services.infrastructure.database.run(upgrade)
    principal = await platform.accounts.authenticator.authenticate(token)
    scopes = sorted(principal.scopes)
    key = await platform.accounts.create_key(principal, "of a test", scopes, None)
    books = Books(server.services, principal.workspace_id, key.row.id)
    url = f"http://{server.address}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE_S) as http:
        yield Caller(server, key.key, books, http, recogniser)
        await server.until_empty()
