"""Machines with slow cables between them, and clocks that differ."""

import asyncio
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest
import yaml

from tests.api.native.voices.voice_making import create
from tests.machines.conftest import Plan, Site
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.parametrize("site", [Plan(machines=2, cable_s=0.1)], indirect=True),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc, which makes the wrong clock"),
    pytest.mark.timeout(900),
]


@pytest.fixture
def wrong_clock(site: Site) -> dict[str, str]:
    """The environment of programs whose clock is 90 s ahead."""
    source = Path(__file__).with_name("wrong_clock.c")
    made = site.config.parent / "wrong_clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return {"LD_PRELOAD": str(made), "OFFSET_S": "90"}


async def test_two_hundred_milliseconds_and_ninety_seconds_apart(
    site: Site, wrong_clock: dict[str, str]
) -> None:
    first, second = site.machines
    second.environment |= wrong_clock
    config = yaml.safe_load(site.config.read_text())
    (worker,) = [app for app in config["applications"] if app["name"] == "worker"]
    worker["import_path"] = "tests.deployments.leased_work.slow_voices:build_worker"
    site.config.write_text(yaml.safe_dump(config))
    key = await asyncio.to_thread(site.start)
    _, clock = second.said("-c", "import time; print(time.time())")
    assert 60 < float(clock) - time.time() < 120
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
