"""Slow, idle and half-closed HTTP clients beside a well-behaved one, and bodies that lie."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from telemetry import metrics
from tests.api.money import books_of
from tests.api.sockets.conftest import SocketServer
from tests.patience import PATIENCE_S, until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address"),
]

ATTACKER = "127.9.9.9"  # limits an address do not touch the well-behaved client
CONNECTIONS = 200
LONG_TEXT = "It was a long day, and the evening would be longer still. " * 60

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connection(
    site: SocketServer, data: bytes = b"", address: str = ATTACKER
) -> AsyncIterator[Streams]:
    """A TCP connection with a short buffer that has sent `data`; aborted at the end."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.bind((address, 0))
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", site.listener.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
    try:
        writer.write(data)
        yield reader, writer
    finally:
        writer.transport.abort()


def request(site: SocketServer, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole request with the key of the site."""
    sent = {
        "Host": "x",
        "Authorization": f"Bearer {site.key}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def speech(site: SocketServer, text: str = "One sentence.") -> bytes:
    body = json.dumps({"text": text, "output_format": "wav"}).encode()
    return request(site, "POST", "/tts-stream", body)


async def serve_well(site: SocketServer) -> None:
    """A client on new connections gets a list, a file of speech and a stream."""
    headers = {"Authorization": f"Bearer {site.key}"}
    async with httpx.AsyncClient(
        base_url=f"http://{site.address}", headers=headers, timeout=PATIENCE_S
    ) as client:
        assert (await client.get("/plans")).status_code == 200
        for path in ("/tts-synthesize", "/tts-stream"):
            answer = await client.post(path, json={"text": "One sentence."})
            assert answer.status_code == 200, answer.text
            assert '"error"' not in answer.text


async def until_nothing_runs(site: SocketServer) -> None:
    """Waits until no request is in progress and every charge is settled."""
    await until(lambda: not metrics.http_requests_live._value.get())
    books = await books_of(site.services, {"Authorization": f"Bearer {site.key}"})
    await books.charged("tts")  # no hold is open, and the ledger is exact


async def test_idle_connections_and_slow_heads_do_not_keep_a_client_out(site: SocketServer) -> None:
    head = request(site, "GET", "/plans")
    async with AsyncExitStack() as stack:
        slow = [
            (await stack.enter_async_context(connection(site, head[: number % 2 * 30])))[1]
            for number in range(CONNECTIONS)
        ]
        for byte in head[30:36]:
            for writer in slow[1::2]:
                writer.write(bytes([byte]))
        await serve_well(site)
    await until_nothing_runs(site)


async def test_readers_that_stall_do_not_keep_a_client_waiting(site: SocketServer) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(8):
            reader, _ = await stack.enter_async_context(connection(site, speech(site, LONG_TEXT)))
            assert await reader.readexactly(15) == b"HTTP/1.1 200 OK"
        await serve_well(site)
    await until_nothing_runs(site)


async def test_a_client_that_pipelines_and_never_reads_keeps_no_other_waiting(
    site: SocketServer,
) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(5):
            await stack.enter_async_context(
                connection(site, request(site, "GET", "/console") * 500)
            )
        await serve_well(site)
    await until_nothing_runs(site)


@pytest.mark.parametrize("sent", [1.0, 0.9, 0.3, 0.0])
async def test_a_half_closed_client_leaves_no_work_and_no_hold_behind(
    site: SocketServer, sent: float
) -> None:
    data = speech(site, LONG_TEXT)
    async with connection(site, data[: round(sent * len(data))]) as (reader, writer):
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
    await until_nothing_runs(site)
    await serve_well(site)
