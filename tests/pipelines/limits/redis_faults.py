"""A TCP proxy that delays a Redis."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def slow_proxy(url: str, delay_s: float) -> AsyncIterator[str]:
    """Forwards bytes, delayed by half of `delay_s` in each direction."""
    port = int(url.rpartition(":")[2].partition("/")[0])

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await asyncio.sleep(delay_s / 2)
                writer.write(data)
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        both_ways = pump(reader, there_writer), pump(there_reader, writer)
        try:
            await asyncio.gather(*both_ways, return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the test is over; the stream's own callback would log it

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield url.replace(f":{port}/", f":{server.sockets[0].getsockname()[1]}/")
    finally:
        server.close()
