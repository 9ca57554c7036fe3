"""What `make run` does with live sockets when it is told to stop."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import yaml

from benchmarks.service import Service, running_service
from tests.deployments.conftest import MODELS_APP, gateway_app
from tests.deployments.socket_client import listening, open_socket, speaking

pytestmark = [pytest.mark.ray, pytest.mark.weights]

ENDS_WITHIN_S = 20.0


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service of its own, with the models that need no weights."""
    config = tmp_path / "serve.yaml"
    applications = [MODELS_APP, gateway_app({})]
    config.write_text(yaml.safe_dump({"proxy_location": "Disabled", "applications": applications}))
    command = [sys.executable, "-m", "deployments.main", "--config", str(config), "--num-cpus", "2"]
    running = running_service(command)
    yield await asyncio.to_thread(running.__enter__)
    await asyncio.to_thread(running.__exit__, None, None, None)


async def test_a_stop_tells_the_sockets_and_ends_soon(service: Service) -> None:
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
        told = time.monotonic()
        assert "stopping" in (await speaker.until("error"))["error"]["message"]
        assert "stopping" in (await listener.until("error"))["error"]
        assert (await speaker.ended(), await listener.ended()) == (1001, 1001)
        with pytest.raises(OSError):
            async with open_socket(service.url, "/ws/tts", service.key):
                pass
    while Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() - told < ENDS_WITHIN_S
        await asyncio.sleep(0.1)
