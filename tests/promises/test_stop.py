"""SIGTERM while sockets are live. The last test of the shared service, which it ends."""

import asyncio
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.deployments.gateway.socket_client import listening, open_socket, speaking
from tests.promises.conftest import ON_SERVERS, Running

pytestmark = [
    pytest.mark.ray,
    pytest.mark.weights,
    pytest.mark.postgres,
    pytest.mark.redis,
    ON_SERVERS,
]

ENDS_WITHIN_S = 20.0  # on a machine that has nothing else to do


async def test_sigterm_sends_an_error_to_open_sockets_and_ends_in_20_s(running: Running) -> None:
    service = running.service
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {service.key}"}) as http:
        voices = (await http.get(f"{service.url}/default-voices")).json()["data"]
    async with (
        speaking(service.url, service.key, voices[0]["voice_id"]) as speaker,
        listening(service.url, service.key) as listener,
    ):
        await speaker.send(send_text={"text": "Before the end."})
        await speaker.send(flush_context={})
        said = await speaker.until("flush_completed", "error")
        assert "flush_completed" in said, said
        os.kill(service.pid, signal.SIGTERM)
        signalled = time.monotonic()
        assert "stopping" in (await speaker.until("error"))["error"]["message"]
        assert "stopping" in (await listener.until("error"))["error"]
        assert (await speaker.ended(), await listener.ended()) == (1001, 1001)
        with pytest.raises(OSError):
            async with open_socket(service.url, "/ws/tts", service.key):
                pass
    while Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() - signalled < ENDS_WITHIN_S * running.slowness
        await asyncio.sleep(0.1)
