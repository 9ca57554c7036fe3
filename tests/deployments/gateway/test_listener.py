"""The gateway's HTTP server: draining, keep-alive, connection limits and socket options."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from deployments.gateway.listener import TCP_USER_TIMEOUT_MS, HttpListener, listening_socket
from tests.patience import PATIENCE_S, block_until


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


async def slow(request: Request) -> PlainTextResponse:
    request.app.state.begun.set()
    await asyncio.sleep(0.5)
    return PlainTextResponse("done")


def app() -> Starlette:
    made = Starlette(routes=[Route("/slow", slow), WebSocketRoute("/echo", echo)])
    made.state.begun = asyncio.Event()  # set by a request for /slow
    return made


@pytest.fixture
def service() -> Starlette:
    return app()


@pytest_asyncio.fixture
async def listener(service: Starlette) -> AsyncIterator[HttpListener]:
    running = HttpListener(service, "127.0.0.1", 0)
    await running.start()
    yield running
    await running.stop()


async def test_a_running_request_completes_before_the_server_stops(
    service: Starlette, listener: HttpListener
) -> None:
    async with httpx.AsyncClient() as client:
        answer = asyncio.create_task(client.get(f"http://127.0.0.1:{listener.port}/slow"))
        await service.state.begun.wait()
        await listener.stop()
        assert (await answer).text == "done"
    assert not listener.serving


async def test_websockets_are_not_compressed_and_are_pinged(listener: HttpListener) -> None:
    async with connect(f"ws://127.0.0.1:{listener.port}/echo", compression="deflate") as client:
        assert client.protocol.extensions == []
        await client.send("a" * 2000)
        assert await client.recv() == "a" * 2000
    # Only the settings: a test of uvicorn's pings would take minutes.
    config = listener._server.config
    assert (config.ws_ping_interval, config.ws_ping_timeout) == (30.0, 10.0)


async def test_a_second_listener_takes_over_the_port(listener: HttpListener) -> None:
    second = HttpListener(app(), "127.0.0.1", listener.port)
    await second.start()
    await listener.stop()
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{second.port}/slow")
    assert answer.status_code == 200
    await second.stop()


def receive_all(client: socket.socket) -> bytes:
    """All bytes received until the server closes the connection."""
    client.settimeout(5)
    answer = b""
    while piece := client.recv(4096):
        answer += piece
    return answer


async def test_new_connections_are_answered_while_the_server_drains(listener: HttpListener) -> None:
    address = ("127.0.0.1", listener.port)
    with ExitStack() as stack:
        # The kernel connects them; the event loop, blocked here, has not accepted any.
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(5)]
        for client in clients:
            client.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await listener.stop()
        for client in clients:
            answer = receive_all(client)
            assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"done")
            assert b"connection: close" in answer.lower()


async def test_keep_alive_connections_are_closed_during_a_drain(listener: HttpListener) -> None:
    async def drain() -> None:
        answer = await client.get(url)
        assert answer.headers["connection"] == "close"
        with pytest.raises(httpx.ConnectError):  # a new connection: another gateway would take it
            await client.get(url)

    url = f"http://127.0.0.1:{listener.port}/slow"
    async with httpx.AsyncClient() as client:
        assert "connection" not in (await client.get(url)).headers
        await listener.stop(drain())


FILES = 160  # of the server below: 80 connections are served, and 20 more get a 503
FEW_FILES = f"""
import asyncio, resource
import uvloop
from deployments.gateway.listener import HttpListener
from tests.deployments.gateway.test_listener import app

async def serve():
    listener = HttpListener(app(), "127.0.0.1", 0)
    await listener.start()
    resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))
    print(listener.port, flush=True)
    await asyncio.sleep(600)

uvloop.run(serve())
"""


UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def request_once(connection: socket.socket, more: bytes = b"") -> bytes:
    """Sends a request; returns the answer, empty when the connection was closed."""
    answer = b""
    try:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n%b\r\n" % more)
        while not answer.endswith((b"Not Found", b"}")) and (piece := connection.recv(4096)):
            answer += piece
    except OSError:
        pass
    return answer


def cpu_seconds(pid: int) -> float:
    """CPU time of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_connections_beyond_the_limit_get_503_and_open_ones_are_kept() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen([sys.executable, "-c", FEW_FILES], stdout=subprocess.PIPE, text=True)
        )
        stack.callback(server.kill)
        assert server.stdout is not None
        port = int(server.stdout.readline())

        def connect() -> socket.socket:
            return stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            )

        old = [connect() for _ in range(60)]
        assert all(request_once(one).startswith(b"HTTP/1.1 404") for one in old)
        new = [connect() for _ in range(2 * FILES)]
        began, used = time.monotonic(), cpu_seconds(server.pid)
        answers = [request_once(one) for one in new[:30]]  # 20 connections are free
        answers += [request_once(one, UPGRADE) for one in new[30:]]
        assert sum(answer.startswith(b"HTTP/1.1 404") for answer in answers) == 20
        refused = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
        # 20 at a time: on a busy machine, others are accepted while these are refused.
        assert len(refused) > 10 and all(b'"overloaded"' in answer for answer in refused)
        assert all(b"retry-after" in answer.lower() for answer in refused)
        assert any(answer == b"" for answer in answers)
        assert all(request_once(one).startswith(b"HTTP/1.1 404") for one in old)
        time.sleep(0.5)
        assert cpu_seconds(server.pid) - used < 0.7 * (time.monotonic() - began)
        for one in new:
            one.close()
        block_until(lambda: request_once(connect()).startswith(b"HTTP/1.1 404"))
        assert all(request_once(one).startswith(b"HTTP/1.1 404") for one in old)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
def test_accepted_sockets_have_a_tcp_user_timeout() -> None:
    with listening_socket("127.0.0.1", 0) as server:
        with socket.create_connection(server.getsockname()):
            server.setblocking(True)
            accepted, _ = server.accept()
            with accepted:
                value = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert value == TCP_USER_TIMEOUT_MS
