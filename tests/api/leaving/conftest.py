"""A server whose engines count their steps, and clients that leave it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from models.registry import CHAT, EMBEDDING, STT, TTS, load_model
from tests.api import local_services
from tests.api.leaving.work import Work, filled, speech_file
from tests.api.local_server import local_settings
from tests.api.money import Books, _open_holds
from tests.api.replaced import with_listening
from tests.api.sockets.conftest import SocketServer, serve
from tests.engines import ECHO, LETTERS, SCRIPTED, TONE
from tests.engines.counted import (
    STEP_S,
    CountedEcho,
    CountedLetters,
    CountedScripted,
    CountedTone,
    Steps,
)
from tests.local_ports import LocalChatModel, LocalEmbeddingModel, LocalSTTModel, LocalTTSModel
from tests.models.speaker.bands import BandsEngine
from tests.patience import PATIENCE_S, until

ONE_SECOND = round(1 / STEP_S)  # steps of an engine


@dataclass
class LeavingSite:
    """The server, and the work of its engines."""

    server: SocketServer
    books: Books
    steps: Steps
    charged_before: int = 0

    def request(self, path: str, work: Work) -> bytes:
        """As it is sent."""
        path = path.partition("#")[0].replace("{voice_id}", self.server.voice_id)
        files = None if work.file is None else {work.file: ("a.wav", speech_file(), "audio/wav")}
        body = filled(work.json, self.server.voice_id)
        request = httpx.Request(
            "POST",
            f"http://{self.server.address}{path}",
            headers={"Authorization": f"Bearer {self.server.key}", **work.headers},
            json=body,
            data=work.data,
            files=files,
            content=None if work.content is None else work.content(),
        )
        content = request.read()
        lines = [f"POST {path} HTTP/1.1".encode()]
        lines += [b"%s: %s" % pair for pair in request.headers.raw]
        return b"\r\n".join(lines) + b"\r\n\r\n" + content

    async def send(self, data: bytes) -> "Client":
        host, _, port = self.server.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        await writer.drain()
        return Client(reader, writer)

    async def check_left(self, made: int) -> int:
        """Checks that the engines end within a second of steps after `made`, and that all that the
        request held is free; returns the units that it was charged."""
        admission = self.server.services.infrastructure.admission
        await until(lambda: not self.steps.live)
        await self.server.until_empty()
        limits = [*admission._kinds.values(), *admission._sending.values()]
        await until(lambda: not any(limit._count for limit in limits))
        assert not admission._callers and not admission.turns.yields
        assert self.steps.made - made <= ONE_SECOND, (made, self.steps.made)
        async with asyncio.timeout(PATIENCE_S):
            while await self.server.services.infrastructure.database.read(_open_holds):
                await asyncio.sleep(0.01)
        return await self._charged() - self.charged_before

    async def forget(self) -> None:
        """Begins another test."""
        self.steps.made = 0
        self.server.services.infrastructure.limits.windows._windows.clear()
        self.charged_before = await self._charged()

    async def _charged(self) -> int:
        return sum(one.units for one in await self.books.entries() if one.kind == "capture")


class Client:
    """A connection whose request was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def read_some(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            data = await self.reader.read(200)
        assert data, "the server has closed the connection"
        return data

    def close(self) -> None:
        self.writer.transport.abort()

    def reset(self) -> None:
        """As a process that was killed: without a FIN."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close_half(self) -> None:
        """Sends nothing more, and would still read."""
        self.writer.write_eof()


def counted_engine(kind: Any, name: str, engine: Any, steps: Steps) -> tuple[Any, Any]:
    """An engine as a subclass that counts, and its description."""
    made, info = load_model(kind, name, local_services._no_weights())
    made.__class__ = engine
    made.steps = steps
    return made, info


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LeavingSite]:
    """Without pauses between a client's mistakes and with the largest plan."""
    folder = tmp_path_factory.mktemp("leaving")
    steps = Steps()
    scripted = counted_engine(STT, SCRIPTED, CountedScripted, steps)
    transcriber = LocalSTTModel(*scripted, BandsEngine())
    letters = counted_engine(EMBEDDING, LETTERS, CountedLetters, steps)
    services = local_services.local_services(
        local_settings(folder),
        speakers={"tone": LocalTTSModel(*counted_engine(TTS, TONE, CountedTone, steps))},
        chat_models={"echo": LocalChatModel(*counted_engine(CHAT, ECHO, CountedEcho, steps))},
        transcriber=transcriber,
        embedders={"letters": LocalEmbeddingModel(*letters)},
    )
    services = with_listening(services, transcriber)
    try:
        async with serve(services) as server:
            yield LeavingSite(server, await server.books(), steps)
            await services.platform.billing.wait_for_settlements()
    finally:
        services.infrastructure.database.close()
