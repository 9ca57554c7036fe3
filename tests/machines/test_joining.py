"""Two machines make one service, and one that would split it is refused with a sentence."""

import asyncio
import shutil
import time
from pathlib import Path

import httpx
import pytest

from configs.settings import PROJECT_DIR
from tests.machines.conftest import GCS_PORT, Machine, Plan, Site
from tests.patience import PATIENCE_S
from tests.promises.recovery import recovery

pytestmark = [
    pytest.mark.parametrize("site", [Plan(machines=2)], indirect=True),
    pytest.mark.timeout(600),
]


def refusal(site: Site, machine: Machine, **options: object) -> str:
    address = f"{site.machines[0].address}:{GCS_PORT}"
    status, output = machine.said("-m", "deployments.join", address, **options)
    assert status == 1, output
    (*_, sentence) = output.strip().splitlines()
    return sentence


def test_two_machines_share_accounts_and_models_and_one_may_die(site: Site, tmp_path: Path) -> None:
    first, second = site.machines
    key = site.start()
    auth = {"Authorization": f"Bearer {key}"}

    sqlite = {"DATABASE_URL": "", "STORAGE_URL": "", "STORAGE_SHARED": "off"}
    told = refusal(site, second, variables=sqlite)
    assert told.startswith("This machine would have data of its own: DATABASE_URL is SQLite")
    told = refusal(site, second, variables={"ANTIPHON_KEY_PEPPER": "x" * 40})
    assert told.startswith("ANTIPHON_KEY_PEPPER: not what this database was used with")
    told = refusal(site, second, variables={"STORAGE_URL": "s3://antiphon/other"})
    assert told.startswith("STORAGE_URL: not what this database was used with")
    plans = PROJECT_DIR / "configs" / "plans.yaml"
    dearer = site.config.parent / "plans.yaml"
    shutil.copy(plans, dearer)
    with dearer.open("a") as file:
        file.write("# other prices\n")
    told = refusal(site, second, instead={plans: dearer})
    assert "they need the same code and configs/" in told

    (joined,) = site.together()
    assert joined.poll() is None
    made = httpx.post(
        f"{first.url}/developer/api", json={"name": "made on the first"}, headers=auth
    )
    assert made.status_code == 201, made.text
    theirs = {"Authorization": f"Bearer {made.json()['key']}"}
    spoken = httpx.post(f"{second.url}/tts-synthesize", json={"text": "Hello."}, headers=theirs)
    assert spoken.status_code == 200, spoken.text
    ready = httpx.get(f"{second.url}/readyz").json()
    assert (ready["status"], ready["degraded"]) == ("ok", [])

    late = httpx.post(f"{second.url}/developer/api", json={"name": "last"}, headers=auth)
    assert late.status_code == 201  # acknowledged, hence not lost with the machine
    second.die()
    auth = {"Authorization": f"Bearer {late.json()['key']}"}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        answer = httpx.post(f"{first.url}/tts-synthesize", json={"text": "Hi."}, headers=auth)
        if answer.status_code == 200:
            break
        time.sleep(0.5)
    assert answer.status_code == 200, answer.text
    asyncio.run(recovery(first.url, within_s=5 * PATIENCE_S))
