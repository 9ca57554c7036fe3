"""What live sessions see when their server leaves."""

import asyncio

import pytest

from tests.api.sockets.client import connect
from tests.api.sockets.conftest import SocketServer
from tests.api.sockets.test_sessions import ending
from tests.patience import PATIENCE_S


async def test_a_server_that_stops_gives_sessions_their_grace_and_tells_them(
    server: SocketServer,
) -> None:
    async with server.tts() as busy, server.tts() as idle:
        await busy.create()
        drained = server.services.infrastructure.sockets.drain(
            2.0, 1012, "this server restarts; connect again"
        )
        stopping = asyncio.create_task(server.listener.stop(drained))
        await asyncio.sleep(0.1)
        with pytest.raises(OSError):
            async with connect(server.url("/ws/tts")):
                pass
        assert await busy.speak("Within the grace.")
        assert await ending(idle) == ("this server restarts; connect again", 1012)
        assert await ending(busy) == ("this server restarts; connect again", 1012)
        async with asyncio.timeout(PATIENCE_S):
            await stopping
    assert not server.listener.serving and not len(server.services.infrastructure.sockets)
