"""TLS in front of a server, for clients that cannot do without."""

import asyncio
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from anyio.from_thread import start_blocking_portal


@contextmanager
def tls_front(url: str, context: ssl.SSLContext) -> Iterator[str]:
    """The address of a server that passes what it decrypts on to the one at `url`."""
    address = urlsplit(url)

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        behind, ahead = await asyncio.open_connection(address.hostname, address.port)
        await asyncio.gather(pass_on(reader, ahead), pass_on(behind, writer))

    async def pass_on(reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        with suppress(OSError):
            writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)

    with start_blocking_portal() as portal:
        server = portal.call(start)
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        portal.call(server.close)
