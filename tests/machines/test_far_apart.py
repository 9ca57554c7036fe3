"""Machines with slow cables between them, and clocks that differ."""

import asyncio
from pathlib import Path

import httpx
import pytest
import yaml

from tests.api.native.voices.voice_making import create
from tests.machines.conftest import Plan, Site
from tests.patience import PATIENCE_S

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
OFF = {
    "LD_PRELOAD": str(FAKETIME),
    "FAKETIME": "+90s",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",
}

pytestmark = [
    pytest.mark.parametrize("site", [Plan(machines=2, cable_s=0.1)], indirect=True),
    pytest.mark.skipif(not FAKETIME.exists(), reason="no libfaketime; `apt-get install faketime`"),
    pytest.mark.timeout(900),
]


async def test_two_hundred_milliseconds_and_ninety_seconds_apart(site: Site) -> None:
    first, second = site.machines
    second.environment |= OFF
    config = yaml.safe_load(site.config.read_text())
    (worker,) = [app for app in config["applications"] if app["name"] == "worker"]
    worker["import_path"] = "tests.deployments.voice_jobs.slow_voices:build_worker"
    site.config.write_text(yaml.safe_dump(config))
    key = await asyncio.to_thread(site.start)
    status, clock = second.said("-c", "import time; print(time.time())")
    status, right = first.said("-c", "import time; print(time.time())")
    assert 85 < float(clock) - float(right) < 120
    await asyncio.to_thread(site.together, ("Gateway", "TTSFast", "Worker"))
    auth = {"Authorization": f"Bearer {key}"}
    async with (
        httpx.AsyncClient(base_url=first.url, headers=auth, timeout=PATIENCE_S) as near,
        httpx.AsyncClient(base_url=second.url, headers=auth, timeout=PATIENCE_S) as far,
        site.load(),
    ):
        voice = await create(near, auth)
        async with asyncio.timeout(3 * PATIENCE_S):
            while voice["status"] == "processing":
                await asyncio.sleep(0.5)
                voice = (await far.get(f"/voices/{voice['id']}")).json()
        assert voice["status"] == "ready", voice
        for client in (near, far):
            body = {"text": "Made on one, spoken on both.", "voice_id": voice["id"]}
            spoken = await client.post("/tts-synthesize", json=body)
            assert spoken.status_code == 200, spoken.text
        address = (await far.get(f"/voices/{voice['id']}/report")).status_code
        assert address == 200
        assert (await far.delete(f"/voices/{voice['id']}")).status_code == 200
        assert (await near.get(f"/voices/{voice['id']}")).status_code == 404
