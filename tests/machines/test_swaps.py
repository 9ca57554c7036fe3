"""A model is swapped on two machines under load: a canary that cannot speak the voice that is asked
for, and then a model that can. No request fails."""

import asyncio
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.engines import TONE, TONE_LOW, TONE_SLOW
from tests.machines.conftest import GCS_PORT, Machine, Plan, Site

pytestmark = [
    pytest.mark.parametrize("site", [Plan(machines=2)], indirect=True),
    pytest.mark.timeout(600),
]

OF_EACH = ("Gateway", "TTSFast", "STT", "Chat")
TOKEN = "m" * 40


def swap(site: Site, user_config: dict[str, Any]) -> tuple[int, str]:
    """The status and the output of the command."""
    config = yaml.safe_load(site.config.read_text())
    models = next(app for app in config["applications"] if app["name"] == "models")
    speech = next(one for one in models["deployments"] if one["name"] == "TTSFast")
    speech["user_config"] = user_config
    site.config.write_text(yaml.safe_dump(config))
    first = site.machines[0]
    return first.said(
        "-m", "deployments.operator", "deploy", str(site.config),
        variables={"CLUSTER_ADDRESS": f"{first.address}:{GCS_PORT}"},
    )  # fmt: skip


async def measured(machine: Machine, name: str) -> dict[str, float]:
    """The samples of a metric, each by its labels."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=machine.url, headers=headers, timeout=20) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        str(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == name
    }


async def until(machine: Machine, name: str, value: float, number: int) -> None:
    """Waits until so many samples of the metric have the value."""
    async with asyncio.timeout(60):
        while True:
            found = await measured(machine, name)
            if list(found.values()).count(value) >= number:
                return
            await asyncio.sleep(0.5)


async def test_a_canary_that_fails_and_a_swap_fail_no_request(site: Site) -> None:
    first = site.machines[0]
    for machine in site.machines:
        machine.environment["METRICS_TOKEN"] = TOKEN
    await asyncio.to_thread(site.start)
    await asyncio.to_thread(site.together, OF_EACH)
    canary = {"model": TONE, "canary": {"model": TONE_LOW, "share": 0.9}}  # it has no voice "alto"
    async with site.load() as tenants:
        await asyncio.sleep(3)
        status, output = await asyncio.to_thread(swap, site, canary)
        assert status == 0 or "previous model" in output, output  # it failed already
        await until(first, "antiphon_canary_share", 0.0, number=2)  # on each machine by itself
        status, output = await asyncio.to_thread(swap, site, {"model": TONE_SLOW})
        assert status == 0, output
        await asyncio.sleep(5)
        for tenant in tenants:
            assert not tenant.state.doubtful and max(tenant.state.statuses) < 500, tenant.state
        requests = await measured(first, "antiphon_engine_requests_total")
        for model, outcome in (("tone-low", "voice_not_found"), ("tone-slow", "ok")):
            named = [labels for labels in requests if f"svc/tts-{model}'" in labels]
            assert [labels for labels in named if f"'{outcome}'" in labels], requests
