"""Gateways follow their open sessions, up and down, and none is cut before its drain."""

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.deployments.conftest import TestCluster, gateway_app, until_ready
from tests.deployments.gateway.hasty_gateway import GRACE_S
from tests.deployments.gateway.socket_client import Client, replicas, speaking
from tests.migrated import data_of_a_service
from tests.patience import PATIENCE_S
from tests.plans import raise_plans
from tests.servers import free_port

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]

SCALING = {
    "min_replicas": 1,
    "max_replicas": 2,
    "policy": {"policy_function": "deployments.autoscaling:by_load"},
    "upscale_delay_s": 0.5,
    "downscale_delay_s": 1,
    "look_back_period_s": 1,
    "metrics_interval_s": 0.5,
}


async def until_gateways(count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(await asyncio.to_thread(replicas, "Gateway")) != count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_gateway_is_added_for_open_sockets_and_goes_without_cutting_one(
    ray_cluster: TestCluster, tmp_path: Path
) -> None:
    database = data_of_a_service(tmp_path)
    port = str(free_port())
    environment = {"ANTIPHON_DATA": str(tmp_path), "PORT": port, "HOST": "127.0.0.1"}
    app = gateway_app(
        {**environment, "MOST_SOCKETS": "8"},
        "tests.deployments.gateway.hasty_gateway:build_gateway",
    )
    app["deployments"][0]["autoscaling_config"] = SCALING
    url = f"http://127.0.0.1:{port}"
    async with (
        ray_cluster.with_app(app),
        httpx.AsyncClient(base_url=url, timeout=30) as http,
        AsyncExitStack() as first,
        AsyncExitStack() as later,
    ):
        await until_ready(http)
        keys = []
        for name in "ab":  # one workspace may not have most sockets of a gateway
            user = {"email": f"{name}@example.com", "password": "a long password"}
            keys.append((await http.post("/auth/signup", json=user)).json()["token"])
        raise_plans(database)
        key = keys[0]
        http.headers["Authorization"] = f"Bearer {key}"
        voice = (await http.get("/default-voices")).json()["data"][0]["voice_id"]

        async def opened(stack: AsyncExitStack, *keys: str) -> list[Client]:
            return [await stack.enter_async_context(speaking(url, key, voice)) for key in keys]

        await until_gateways(1)
        kept = await opened(first, key, key)
        await opened(later, *keys, *keys)  # 6 of 8: above two thirds
        await until_gateways(2)
        assert [await one.speak("I stay.") for one in kept] == ["flush_completed"] * 2
        await later.aclose()

        spoken_at = [0.0, 0.0]
        ended = [False, False]

        async def speak_on(number: int) -> None:
            """Until the session is told that its gateway goes."""
            while await kept[number].speak("I go on.") == "flush_completed":
                spoken_at[number] = time.monotonic()
                await asyncio.sleep(0.05)
            ended[number] = await kept[number].ended() == 1012

        speaking_on = [asyncio.create_task(speak_on(number)) for number in range(2)]
        began = time.monotonic()
        await until_gateways(1)
        gone = time.monotonic()
        await asyncio.sleep(1)
        for number, task in enumerate(speaking_on):
            if task.done():  # its gateway went, and closed it after its drain, with the reason
                task.result()
                assert ended[number] and spoken_at[number] - began > GRACE_S / 2
            else:  # the other gateway's
                assert spoken_at[number] > gone
                task.cancel()
        await asyncio.gather(*speaking_on, return_exceptions=True)
        async with speaking(url, key, voice) as another:
            assert await another.speak("I am new here.") == "flush_completed"
