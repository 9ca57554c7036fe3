"""Live sessions while their server drains."""

import asyncio

import pytest

from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_sessions import last_error
from tests.patience import PATIENCE_S


async def test_a_draining_server_refuses_new_sockets_and_closes_live_ones(
    server: SocketServer,
) -> None:
    async with server.tts() as busy, server.tts() as idle:
        await busy.create()
        drained = server.services.infrastructure.sockets.drain(
            4.0, 1012, "this server restarts; connect again"
        )
        stopping = asyncio.create_task(server.listener.stop(drained))
        await asyncio.sleep(0.1)
        with pytest.raises(OSError):
            async with connect(server.url("/ws/tts")):
                pass
        assert await busy.speak("Within the grace.")
        assert await last_error(idle) == ("this server restarts; connect again", 1012)
        assert await last_error(busy) == ("this server restarts; connect again", 1012)
        async with asyncio.timeout(PATIENCE_S):
            await stopping
    assert not server.listener.serving and not server.services.infrastructure.sockets.live


async def test_a_socket_that_speaks_may_end_its_speech_when_the_service_stops(
    server: SocketServer,
) -> None:
    async with server.tts() as speaker, server.tts() as idle:
        await speaker.create()
        await speaker.send("send_text", text="A sentence of some length. " * 20)
        await speaker.send("flush_context")
        assert "audio_chunk" in await speaker.receive()
        sockets = server.services.infrastructure.sockets
        drain = sockets.drain(0.0, 1001, "the service is stopping", busy_s=PATIENCE_S)
        stopping = asyncio.create_task(drain)
        assert await last_error(idle) == ("the service is stopping", 1001)
        async with asyncio.timeout(PATIENCE_S):
            while "flush_completed" not in await speaker.receive():
                pass
        assert await last_error(speaker) == ("the service is stopping", 1001)
        await stopping
