"""A proxy between a client and a service that can lose its connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CuttingProxy:
    """Carries bytes to `address` until `cut`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._writers: list[asyncio.StreamWriter] = []
        self.connections = 0
        self.address = ""

    def cut(self) -> None:
        """Loses all connections, as a network does: without a close of WebSocket."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there_reader, there = await asyncio.open_connection(*self._target)
        self._writers += [writer, there]
        with suppress(ConnectionError):
            await asyncio.gather(_copy(reader, there), _copy(there_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def cutting_proxy(address: str) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(address)
    server = await asyncio.start_server(proxy.carry, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        proxy.cut()
        server.close()
