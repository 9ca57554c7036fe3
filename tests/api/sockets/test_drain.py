"""Live sessions while their server drains."""

import asyncio

import pytest

from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_sessions import last_error
from tests.patience import PATIENCE_S


async def test_a_draining_server_refuses_new_sockets_and_closes_live_ones_after_the_grace(
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
