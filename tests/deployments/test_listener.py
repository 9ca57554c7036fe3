"""The gateway's own HTTP server."""

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from deployments.listener import TCP_USER_TIMEOUT_MS, Listener, listening_socket


async def slow(request: Request) -> PlainTextResponse:
    await asyncio.sleep(0.5)
    return PlainTextResponse("done")


def app() -> Starlette:
    return Starlette(routes=[Route("/slow", slow)])


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[Listener]:
    running = Listener(app(), "127.0.0.1", 0)
    await running.start()
    yield running
    await running.stop()


async def test_a_request_that_runs_ends_before_the_server_does(listener: Listener) -> None:
    async with httpx.AsyncClient() as client:
        answer = asyncio.create_task(client.get(f"http://127.0.0.1:{listener.port}/slow"))
        await asyncio.sleep(0.2)
        await listener.stop()
        assert (await answer).text == "done"
    assert not listener.serving


async def test_a_second_listener_takes_over_the_port(listener: Listener) -> None:
    second = Listener(app(), "127.0.0.1", listener.port)
    await second.start()
    await listener.stop()
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{second.port}/slow")
    assert answer.status_code == 200
    await second.stop()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
def test_accepted_sockets_end_when_the_client_stalls() -> None:
    with listening_socket("127.0.0.1", 0) as server:
        with socket.create_connection(server.getsockname()):
            server.setblocking(True)
            accepted, _ = server.accept()
            with accepted:
                value = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert value == TCP_USER_TIMEOUT_MS
