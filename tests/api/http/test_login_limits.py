"""Failed logins are limited by address and by account, without locking its owner out."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest

from api.app import create_app
from api.http.errors import ApiError
from api.http.limits import Attempts, by_network, count_attempts
from api.services import Services
from pipelines.limits import limits as limits_module
from pipelines.limits.limits import HOUR_S, SharedLimits
from tests.api.http.test_rate_limits import clock, log_in, services
from tests.api.replaced import with_admission
from tests.clock import Clock

__all__ = ["clock", "services"]  # fixtures


OWNER = {"email": "ada@example.com", "password": "right password"}


@asynccontextmanager
async def clients_at(
    services: Services, *addresses: str, **limits: int
) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Clients at those addresses of an application with other limits of attempts."""
    app = create_app(with_admission(services, **limits))
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app, client=(address, 1)), base_url="http://test"
                )
            )
            for address in addresses
        ]


async def test_distributed_failed_logins_do_not_lock_out_known_addresses(
    services: Services, clock: Clock
) -> None:
    places = ("192.0.2.1", "2001:db8::1", *(f"203.0.113.{i}" for i in range(6)), "203.0.114.1")
    async with clients_at(services, *places, failed_logins_per_account_and_hour=3) as (
        home,
        elsewhere,
        *attackers,
        new,
    ):
        assert (await home.post("/auth/signup", json=OWNER)).status_code == 201
        assert (await log_in(elsewhere, "right password")).status_code == 200
        tries = [(await log_in(one, "wrong password")).status_code for one in attackers]
        assert tries == [401] * 6
        refused = await log_in(new, "right password")  # the owner, at an address beside theirs
        assert refused.json()["error"] == "rate_limited"
        assert "of this account" in refused.json()["message"]
        assert refused.headers["Retry-After"] == "3600"
        for known in (home, elsewhere):
            assert (await log_in(known, "wrong password")).status_code == 401
            assert (await log_in(known, "right password")).status_code == 200
        clock.now += 3600
        assert (await log_in(new, "right password")).status_code == 200


async def test_an_owner_at_an_unknown_address_logs_in_while_strangers_elsewhere_guess(
    services: Services, clock: Clock
) -> None:
    attackers = [f"{net}.0.113.{i}" for net in (203, 204) for i in range(20)]
    attackers += [f"2001:db8:{i}::1" for i in range(20)]
    places = ("192.0.2.1", "198.51.100.1", "2a02:8108::1", *attackers)
    async with clients_at(services, *places, failed_logins_per_account_and_hour=5) as (
        home,
        phone,
        office,
        *guessing,
    ):
        assert (await home.post("/auth/signup", json=OWNER)).status_code == 201
        for _ in range(3):
            tries = [(await log_in(one, "wrong password")).status_code for one in guessing]
            clock.now += 600
        assert set(tries) == {429}
        for one in (phone, office):
            assert (await log_in(one, "right password")).status_code == 200


async def test_guesses_from_every_block_of_addresses_are_bounded_by_the_hour(
    services: Services,
) -> None:
    places = [f"{net}.0.113.{i}" for net in range(1, 11) for i in range(5)]
    async with clients_at(services, *places, failed_logins_per_account_and_hour=5) as guessing:
        tries = [(await log_in(one, "wrong password")).status_code for one in guessing]
        assert tries.count(401) == 5 + 9 * 3  # the first block used up those of the account
        assert set(tries) == {401, 429}


async def test_failed_logins_of_neighbours_do_not_lock_out_a_known_account(
    services: Services,
) -> None:
    async with clients_at(services, "192.0.2.1", failed_logins_per_minute=2) as (shared,):
        assert (await shared.post("/auth/signup", json=OWNER)).status_code == 201
        statuses = []
        for number in range(4):
            body = {"email": f"{number}@example.com", "password": "wrong password"}
            statuses.append((await shared.post("/auth/login", json=body)).status_code)
        assert statuses == [401, 401, 429, 429]
        assert (await log_in(shared, "right password")).status_code == 200


async def test_unknown_accounts_are_limited_like_known_ones(services: Services) -> None:
    async with clients_at(
        services, "192.0.2.1", "192.0.2.2", failed_logins_per_account_and_hour=3
    ) as (home, attacker):
        assert (await home.post("/auth/signup", json=OWNER)).status_code == 201
        answers = []
        for email in (OWNER["email"], "unknown@example.com"):
            body = {"email": email, "password": "wrong password"}
            answers.append([await attacker.post("/auth/login", json=body) for _ in range(8)])
        assert [one.status_code for one in answers[0]] == [401] * 6 + [429] * 2
        assert [one.content for one in answers[0]] == [one.content for one in answers[1]]


async def test_logins_of_an_address_are_limited_before_the_account_lookup(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, accounts = [], services.platform.accounts
    knows_address = accounts.knows_address

    async def count(email: str, address: str) -> bool:
        looked_up.append(email)
        return await knows_address(email, address)

    monkeypatch.setattr(accounts, "knows_address", count)
    async with clients_at(services, "192.0.2.1", failed_logins_per_hour=10) as (attacker,):
        for number in range(15):
            body = {"email": f"{number}@example.com", "password": "wrong password"}
            await attacker.post("/auth/login", json=body)
    assert len(looked_up) == 10


async def test_refused_addresses_of_a_network_push_out_no_window_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_module, "MAX_WINDOWS", 500)
    limits = SharedLimits()

    async def is_refused(*attempts: Attempts) -> bool:
        try:
            await count_attempts(limits, *attempts)
        except ApiError:
            return True
        return False

    account = Attempts("account", "login-account:a", 3, HOUR_S)
    assert [await is_refused(account) for _ in range(4)] == [False, False, False, True]
    networks = (f"2001:db8:0:{number:x}::/64" for number in range(2000))
    for network in networks:
        await is_refused(*by_network("login", "login-hour", network, 4, HOUR_S))
    assert await is_refused(account)
