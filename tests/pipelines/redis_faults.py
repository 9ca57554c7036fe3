"""A Redis that can be stopped, killed and started again, and a slow way to one."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redis import Redis


@dataclass
class OwnRedis:
    """A server that may be stalled, killed and started again on its port."""

    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port)]
        command += ["--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        client = Redis.from_url(self.url, socket_timeout=1)
        deadline = time.monotonic() + 10
        while True:
            try:
                client.ping()
                return
            except Exception:
                assert time.monotonic() < deadline, "Redis did not start"
                time.sleep(0.02)

    def signal(self, number: int) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@asynccontextmanager
async def slow_proxy(url: str, delay_s: float) -> AsyncIterator[str]:
    """Passes bytes on, each way late by half of `delay_s`."""
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
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
