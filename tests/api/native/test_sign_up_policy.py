"""Who can sign up: anyone, those with an invite of the operator, or no one."""

import asyncio
import html
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.services import Services
from configs.settings import Settings, SignUpPolicy
from db.database import utc_now
from telemetry.logs import redact
from tests.api.in_process import client_of
from tests.api.local_services import local_services
from tests.clock import WallClock

WEEK = timedelta(days=7)


@asynccontextmanager
async def service_with(
    settings: Settings, policy: SignUpPolicy
) -> AsyncIterator[tuple[httpx.AsyncClient, Services]]:
    services = local_services(replace(settings, sign_up=policy))
    async with client_of(create_app(services)) as client:
        yield client, services
    services.infrastructure.database.close()


async def sign_up(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    body = {"email": "ada@example.com", "password": "correct horse", **fields}
    return await client.post("/auth/signup", json=body)


async def invite(
    services: Services,
    email: str | None = None,
    credit: int | None = None,
    until: datetime | None = None,
) -> str:
    return await services.platform.accounts.invite(email, credit, until or utc_now() + WEEK)


async def credit_of(client: httpx.AsyncClient, answer: httpx.Response) -> float:
    assert answer.status_code == 201, answer.text
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    usage = (await client.get("/billing/usage", headers=headers)).json()
    return float(usage["credit_balance"])


async def test_sign_up_is_refused_where_it_is_closed_also_with_an_invite(
    settings: Settings,
) -> None:
    async with service_with(settings, "closed") as (client, services):
        for fields in ({}, {"invite": await invite(services)}):
            answer = await sign_up(client, **fields)
            assert (answer.status_code, answer.json()["error"]) == (403, "sign_up_closed")


async def test_sign_up_by_invite_needs_one_that_is_not_used(settings: Settings) -> None:
    async with service_with(settings, "invite") as (client, services):
        code = await invite(services)
        for fields in ({}, {"invite": ""}, {"invite": code[:-1]}, {"invite": "inv_"}):
            answer = await sign_up(client, **fields)
            assert (answer.status_code, answer.json()["error"]) == (403, "invalid_invite"), fields
        answer = await sign_up(client, invite=code)
        assert await credit_of(client, answer) == 5.0
        headers = {"Authorization": f"Bearer {answer.json()['token']}"}
        (entry,) = (await client.get("/audit", headers=headers)).json()["data"]
        assert (entry["action"], entry["details"]) == ("account.created", {"invited": True})
        again = await sign_up(client, email="bob@example.com", invite=code)
        assert (again.status_code, again.json()["error"]) == (403, "invalid_invite")


async def test_one_invite_used_at_the_same_time_makes_one_account(settings: Settings) -> None:
    async with service_with(settings, "invite") as (client, services):
        code = await invite(services)
        answers = await asyncio.gather(
            *(sign_up(client, email=f"{i}@example.com", invite=code) for i in range(4))
        )
        assert sorted(one.status_code for one in answers) == [201, 403, 403, 403]


async def test_an_invite_may_be_for_one_address_and_set_the_credit(settings: Settings) -> None:
    async with service_with(settings, "invite") as (client, services):
        code = await invite(services, "ada@example.com", 25_000_000)
        other = await sign_up(client, email="bob@example.com", invite=code)
        assert other.json()["error"] == "invalid_invite"
        answer = await sign_up(client, email="ADA@example.com", invite=code)
        assert await credit_of(client, answer) == 25.0
        free = await invite(services, credit=0)
        answer = await sign_up(client, email="bob@example.com", invite=free)
        assert await credit_of(client, answer) == 0.0


async def test_an_expired_invite_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service_with(settings, "invite") as (client, services):
        code = await invite(services)
        WallClock(monkeypatch).ahead = WEEK
        assert (await sign_up(client, invite=code)).json()["error"] == "invalid_invite"


async def test_a_taken_address_spends_no_invite_and_shows_only_with_one(
    settings: Settings,
) -> None:
    async with service_with(settings, "invite") as (client, services):
        first, second = await invite(services), await invite(services)
        assert (await sign_up(client, invite=first)).status_code == 201
        assert (await sign_up(client)).json()["error"] == "invalid_invite"
        assert (await sign_up(client, invite=first)).json()["error"] == "invalid_invite"
        assert (await sign_up(client, invite=second)).json()["error"] == "email_taken"
        answer = await sign_up(client, email="bob@example.com", invite=second)
        assert answer.status_code == 201


async def test_an_invite_gives_its_credit_where_sign_up_is_open(settings: Settings) -> None:
    async with service_with(settings, "open") as (client, services):
        answer = await sign_up(client, invite=await invite(services, credit=7_000_000))
        assert await credit_of(client, answer) == 7.0
        answer = await sign_up(client, email="bob@example.com")
        assert await credit_of(client, answer) == 5.0


async def test_the_code_of_an_invite_is_neither_stored_nor_logged(
    settings: Settings, tmp_path: Path
) -> None:
    async with service_with(settings, "invite") as (_, services):
        code = await invite(services)
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("test.db*"))
    assert b"invite" in stored and code.encode() not in stored
    assert code not in redact(f"{{'invite': '{code}'}}")


@pytest.mark.parametrize("policy", ["open", "invite", "closed"])
async def test_the_console_is_told_the_policy(settings: Settings, policy: SignUpPolicy) -> None:
    async with service_with(settings, policy) as (client, _):
        page = (await client.get("/console")).text
        assert f'"sign_up": "{policy}"' in html.unescape(page)
