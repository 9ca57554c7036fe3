"""Two gateways on one port share their rate limits, counted by ModelIndex or in Redis."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from redis import Redis
from websockets.exceptions import InvalidStatus

from pipelines.limits.limits import LOCAL
from tests.api.sockets.client import connect
from tests.deployments.conftest import TestCluster, gateway_app, samples, until_ready
from tests.migrated import data_of_a_service
from tests.patience import PATIENCE_S
from tests.servers import free_port

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]

FREE_REQUESTS, FREE_SOCKETS = 60, 2
SIGN_UP_HITS = 2  # of the address, by the minute and by the hour


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("redis", marks=[pytest.mark.slow, pytest.mark.redis])],
)
def environment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Environment variables of two gateways, with the store of their limits."""
    data = tmp_path_factory.mktemp("gateways")
    data_of_a_service(data)
    given = {"ANTIPHON_DATA": str(data), "PORT": str(free_port()), "HOST": "127.0.0.1"}
    if request.param == "redis":
        given["REDIS_URL"] = request.getfixturevalue("redis_url")
        Redis.from_url(given["REDIS_URL"]).flushall()
    return given


@pytest.fixture(scope="module")
def gateways(ray_cluster: TestCluster, environment: dict[str, str]) -> Iterator[None]:
    ray_cluster.extra_apps = [gateway_app(environment)]
    ray_cluster.extra_apps[0]["deployments"][0]["num_replicas"] = 2
    ray_cluster.deploy()
    yield
    ray_cluster.extra_apps = []
    ray_cluster.deploy()


@pytest_asyncio.fixture(loop_scope="session")
async def url(gateways: None, environment: dict[str, str]) -> str:
    address = f"http://127.0.0.1:{environment['PORT']}"
    async with httpx.AsyncClient(base_url=address, timeout=30) as client:
        await until_ready(client)
    return address


async def token(url: str, email: str) -> str:
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        body = {"email": email, "password": "a long password"}
        answer = await client.post("/auth/signup", json=body)
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["token"]
        return made


async def ask(url: str, credential: str, times: int) -> list[httpx.Response]:
    """Sends requests over separate connections, which the kernel spreads over the gateways."""
    headers = {"Authorization": f"Bearer {credential}"}
    each_its_own = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=url, timeout=30, headers=headers, limits=each_its_own
    ) as client:
        return await asyncio.gather(*(client.get("/plans") for _ in range(times)))


Counts = dict[frozenset[tuple[str, str]], float]  # by their labels


async def decisions(url: str) -> Counts:
    """Counted requests of each gateway."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as client:
        found = await samples(client)
    return {
        frozenset(one.labels.items()): one.value
        for one in found
        if one.name == "antiphon_limit_decisions_total"
    }


async def local_decisions_of(url: str, before: Counts, requests: int) -> float:
    """How many of the requests since `before` were decided locally, once all are reported.

    Counts of a gateway that another test has killed disappear meanwhile."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        now = await decisions(url)
        made = {one: value - before.get(one, 0) for one, value in now.items()}
        if sum(made.values()) >= requests:
            return sum(value for one, value in made.items() if ("backend", LOCAL) in one)
        assert time.monotonic() < deadline, (before, now)
        await asyncio.sleep(0.5)


async def test_two_gateways_admit_exactly_the_requests_of_the_plan(url: str) -> None:
    """When the store answered in time: on a machine whose cores are all taken Redis may not."""
    deadline = time.monotonic() + 5 * PATIENCE_S
    exact = 0
    while exact < 2:
        assert time.monotonic() < deadline, "the store was never in time"
        before = await decisions(url)
        credential = await token(url, f"{uuid4().hex}@example.com")
        answers = await ask(url, credential, FREE_REQUESTS + 30)
        local = await local_decisions_of(url, before, SIGN_UP_HITS + len(answers))
        assert {one.status_code for one in answers} == {200, 429}
        admitted = sum(one.status_code == 200 for one in answers)
        windows = {one.headers["X-RateLimit-Reset"] for one in answers}
        is_exact = (admitted, len(windows)) == (FREE_REQUESTS, 1)
        assert is_exact or local, (admitted, windows)
        exact += is_exact


async def test_two_gateways_open_exactly_the_sockets_of_the_plan(url: str) -> None:
    credential = await token(url, "sockets-limit@example.com")
    address = f"{url.replace('http', 'ws', 1)}/ws/tts?apiKey={credential}"
    opened, refused = 0, 0
    async with AsyncExitStack() as stack:
        for _ in range(8):
            try:
                await stack.enter_async_context(connect(address))
                opened += 1
            except InvalidStatus as refusal:
                assert refusal.response.status_code == 429
                refused += 1
    assert (opened, refused) == (FREE_SOCKETS, 6)
