"""Limits of an address hold for the IPv6 networks around it, and no IPv4 address has one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from redis import Redis

from api.app import create_app
from api.http.addresses import network_of, networks_of, widest_network
from api.http.admission import AdmissionControl
from api.http.errors import ApiError
from api.http.limits import by_network, count_attempt
from api.services import Services
from pipelines.accounts.authentication import new_api_key
from pipelines.accounts.passwords import QUEUE_LENGTH, Passwords
from pipelines.errors import Overloaded
from pipelines.limits.cluster import ClusterStore, RequestCounter
from pipelines.limits.limits import SharedLimits
from pipelines.limits.redis import RedisStore
from tests.api.http.test_rate_limits import clock, listening, services
from tests.api.replaced import with_admission
from tests.clock import Clock
from tests.kept import hash_as_shipped
from tests.patience import PATIENCE_S

__all__ = ["clock", "services"]  # fixtures

# 40 addresses of one /56, and one in each of 40 /56 networks of the same /48.
OF_56 = [f"2001:db8:7:{number:x}::1" for number in range(40)]
OF_48 = [f"2001:db8:7:{number * 256:x}::1" for number in range(40)]
OF_IPV4 = [f"198.51.100.{number}" for number in range(40)]
NETWORKS = [(OF_56, 4), (OF_48, 16), (OF_IPV4, 40)]
"""Addresses, and how many times the allowance of one of them all have together."""


@asynccontextmanager
async def behind_proxy(services: Services, **limits: int) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that trusts the addresses that it forwards, with those limits."""
    app = create_app(with_admission(services, **limits))
    async with listening(app, ("127.0.0.0/8",)) as client:
        yield client


def test_networks_are_those_that_one_customer_may_have() -> None:
    found = networks_of(network_of("2001:db8:7:1234::9"))
    assert found == (
        ("2001:db8:7:1234::/64", 1),
        ("2001:db8:7:1200::/56", 4),
        ("2001:db8:7::/48", 16),
    )
    for written in (
        "2001:DB8:7:1234:0::9",
        "[2001:db8:7:1234::9]:443",
        "[2001:db8:7:1234::9]",
        "2001:db8:7:1234::9%eth0",
    ):
        assert networks_of(network_of(written)) == found
    assert network_of("192.0.2.1:50123") == "192.0.2.1"
    for alone in ("192.0.2.1", "::ffff:192.0.2.1", "unix", ""):
        assert networks_of(network_of(alone)) == ((network_of(alone), 1),)
    assert widest_network("2001:db8:7:1234::/64") == "2001:db8:7::/48"


async def statuses(
    services: Services, path: str, addresses: list[str], **limits: int
) -> Counter[int]:
    """The statuses of requests with a password, one from each of the addresses."""
    async with behind_proxy(services, **limits) as client:
        counts = Counter[int]()
        for number, address in enumerate(addresses):
            body = {"email": f"{number}@example.com", "password": "a long password"}
            headers = {"X-Forwarded-For": address}
            answer = await client.post(path, json=body, headers=headers)
            counts[answer.status_code] += 1
    return counts


@pytest.mark.parametrize("window", ["minute", "hour"])
@pytest.mark.parametrize(("addresses", "times"), NETWORKS)
async def test_sign_ups_and_failed_logins_are_limited_by_network(
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    addresses: list[str],
    times: int,
    window: str,
) -> None:
    async def hash_quickly(*_: object, **__: object) -> str:
        return "!"

    async def refuse(*_: object, **__: object) -> bool:
        return False

    monkeypatch.setattr(Passwords, "hash_new", hash_quickly)
    monkeypatch.setattr(Passwords, "verify", refuse)
    limits = {f"{attempts}_per_{window}": 1 for attempts in ("sign_ups", "failed_logins")}
    for path, status in (("/auth/login", 401), ("/auth/signup", 201)):
        counts = await statuses(services, path, addresses, **limits)
        assert counts == Counter({status: times, 429: len(addresses) - times})


@pytest.mark.parametrize(("addresses", "times"), NETWORKS)
async def test_unknown_keys_are_limited_by_network(
    services: Services, auth: dict[str, str], addresses: list[str], times: int
) -> None:
    async with behind_proxy(services, unknown_keys_per_minute=1) as client:
        statuses = Counter[int]()
        for address in addresses:
            wrong = {"Authorization": f"Bearer {new_api_key()}", "X-Forwarded-For": address}
            statuses[(await client.get("/plans", headers=wrong)).status_code] += 1
            valid = {**auth, "X-Forwarded-For": address}
            assert (await client.get("/plans", headers=valid)).status_code == 200
    assert statuses[401] == times and statuses[429] == len(addresses) - times


async def test_what_one_address_is_refused_uses_up_nothing_of_its_network(
    services: Services,
) -> None:
    async with behind_proxy(services, failed_logins_per_minute=1) as client:

        async def log_in(address: str, email: str) -> int:
            body = {"email": email, "password": "wrong password"}
            headers = {"X-Forwarded-For": address}
            return (await client.post("/auth/login", json=body, headers=headers)).status_code

        tries = [await log_in(OF_56[0], f"{number}@example.com") for number in range(10)]
        assert Counter(tries) == {401: 1, 429: 9}
        others = [await log_in(address, "owner@example.com") for address in OF_56[1:5]]
        assert others == [401, 401, 401, 429]


async def test_an_account_has_a_hundred_failures_an_hour_at_known_addresses(
    services: Services, clock: Clock
) -> None:
    limits = {"failed_logins_per_known_account_and_hour": 3, "failed_logins_per_minute": 2}
    async with behind_proxy(services, **limits) as client:
        headers = {"X-Forwarded-For": "192.0.2.1"}
        body = {"email": "ada@example.com", "password": "right password"}
        assert (await client.post("/auth/signup", json=body, headers=headers)).status_code == 201
        wrong = {**body, "password": "wrong password"}
        statuses = []
        for _ in range(3):
            for _ in range(2):
                answer = await client.post("/auth/login", json=wrong, headers=headers)
                statuses.append(answer.status_code)
            clock.now += 61
        assert statuses == [401, 401, 401, 429, 429, 429]
        clock.now += 3600
        assert (await client.post("/auth/login", json=body, headers=headers)).status_code == 200


def test_the_shipped_limits_are_those_that_are_promised(services: Services) -> None:
    shipped = services.platform.request_limits.admission
    assert (shipped.sign_ups_per_minute, shipped.sign_ups_per_hour) == (20, 200)
    assert (shipped.failed_logins_per_minute, shipped.failed_logins_per_hour) == (30, 300)
    assert shipped.failed_logins_per_known_account_and_hour == 100


@pytest.mark.parametrize(
    "backend", ["process", "cluster", pytest.param("redis", marks=pytest.mark.redis)]
)
@pytest.mark.parametrize(("addresses", "times"), NETWORKS)
async def test_every_store_of_limits_counts_networks(
    request: pytest.FixtureRequest, backend: str, addresses: list[str], times: int
) -> None:
    gateways = 2
    if backend == "process":
        made = [SharedLimits()] * gateways
    elif backend == "cluster":
        counter = RequestCounter()

        async def ask(method: str, *arguments: object) -> object:
            return await getattr(counter, method)(*arguments)

        made = [SharedLimits(ClusterStore(ask), timeout_s=PATIENCE_S) for _ in range(gateways)]
    else:
        url = request.getfixturevalue("redis_url")
        Redis.from_url(url).flushall()
        made = [SharedLimits(RedisStore(url), timeout_s=PATIENCE_S) for _ in range(gateways)]
    admitted = 0
    for number, address in enumerate(addresses):
        for attempts in by_network("sign_up", "test", network_of(address), 1):
            try:
                await count_attempt(made[number % gateways], attempts)
            except ApiError as error:
                assert error.code == "rate_limited"
                break
        else:
            admitted += 1
    assert admitted == times
    for limits in made:
        await limits.close()


def test_requests_in_progress_are_limited_by_network(services: Services) -> None:
    config = services.platform.request_limits.admission.model_copy(
        update={"requests": 200, "requests_per_address": 10}
    )
    for name, alone, together in (
        ("enter_caller", 10, {4: 40, 16: 50, 40: 100}),
        ("enter_unknown", 25, {4: 50, 16: 50, 40: 1000}),
    ):
        for addresses, times in NETWORKS:
            control = AdmissionControl(config)
            taken = []
            for address in addresses:
                for _ in range(alone + 1):
                    try:
                        taken.append(getattr(control, name)(network_of(address)))
                    except ApiError as error:
                        assert error.code in ("concurrency_limit", "overloaded")
            assert len(taken) == together[times]
            for leave in taken:
                leave()
            assert not control._callers
    for loopback in ("127.0.0.1", "::1"):
        for _ in range(1000):  # it may be a proxy
            control.enter_unknown(network_of(loopback))


async def test_a_network_that_fills_the_queue_of_passwords_keeps_none_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hash_as_shipped(monkeypatch)
    passwords = Passwords()
    done: list[str] = []

    async def hash_for(network: str) -> bool:
        try:
            await passwords.hash("a long password", network=network)
        except Overloaded:
            return False
        done.append(network)
        return True

    flood = [asyncio.create_task(hash_for("2001:db8:7::/48")) for _ in range(QUEUE_LENGTH + 5)]
    await asyncio.sleep(0)
    others = await asyncio.gather(*(hash_for(address) for address in ("192.0.2.1", "192.0.2.2")))
    assert others == [True, True]
    assert len(done) <= 4  # the flood had one at work, and each network has its turn
    assert (await asyncio.gather(*flood)).count(True) == QUEUE_LENGTH + 1 - len(others)
