"""Who changes plans: workspaces, the operator, or a payment system that confirms."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from aiohttp import web
from standardwebhooks import Webhook as Verifier

from antiphon.webhooks import signature_headers, signing_key
from api.app import create_app
from api.services import Services
from configs.settings import PlanWebhook, Settings
from tests.api.in_process import client_of
from tests.api.local_services import local_services
from tests.api.replaced import with_platform

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
PRO = {"plan_id": "pro", "billing_cycle": "annual"}


@dataclass
class Payments:
    """The operator's payment system, whose answers a test chooses."""

    status: int = 200
    body: Any = field(default_factory=lambda: {"checkout_url": "https://pay.example/7"})
    events: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        Verifier(SECRET).verify(body, dict(request.headers))
        self.events.append(json.loads(body))
        headers = {"Location": "/elsewhere"}
        return web.json_response(self.body, status=self.status, headers=headers)


@pytest.fixture
async def payments() -> AsyncIterator[Payments]:
    made, app = Payments(), web.Application()
    app.router.add_post("/plans", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/plans"
    yield made
    await runner.cleanup()


@pytest.fixture
async def services(settings: Settings, payments: Payments) -> AsyncIterator[Services]:
    """Services where the payment system confirms."""
    webhook = PlanWebhook(payments.url, SECRET)
    built = local_services(replace(settings, plan_changes="webhook", plan_webhook=webhook))
    yield built
    built.infrastructure.database.close()


async def plan(client: httpx.AsyncClient, auth: dict[str, str]) -> str:
    current = (await client.get("/billing/current-plan", headers=auth)).json()
    return f"{current['plan']['id']} {current['billing_cycle']}"


async def subscribe(
    client: httpx.AsyncClient, auth: dict[str, str], **change: str
) -> httpx.Response:
    return await client.post("/billing/subscribe", headers=auth, json={**PRO, **change})


async def confirm(
    client: httpx.AsyncClient,
    asked: Any,
    secret: str = SECRET,
    late_s: float = 0,
    message: str = "evt_1",
) -> httpx.Response:
    """Confirms what was asked for in the data of an event."""
    plan_id, cycle = asked["plan"]["id"], asked["billing_cycle"]
    confirmed = {"workspace": asked["workspace"], "plan_id": plan_id, "billing_cycle": cycle}
    body = json.dumps(confirmed).encode()
    sent_at = int(time.time() - late_s)
    headers = signature_headers(message, sent_at, body, [signing_key(secret)])
    headers["Content-Type"] = "application/json"
    return await client.post("/billing/confirmations", content=body, headers=headers)


async def test_a_change_is_pending_until_the_payment_system_confirms(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments
) -> None:
    answer = await subscribe(client, auth)
    assert answer.status_code == 201
    assert answer.json()["checkout_url"] == "https://pay.example/7"
    pending = answer.json()["subscription"]
    assert set(pending) == {"id", "plan", "status", "billing_cycle", "next_billing_date"}
    assert (pending["status"], pending["plan"]["id"]) == ("pending", "pro")
    assert await plan(client, auth) == "free monthly"
    (event,) = payments.events
    assert event["event"] == "plan.requested"
    asked = event["data"]
    assert (asked["id"], asked["current_plan"]) == (pending["id"], "free")
    assert asked["plan"] == {"id": "pro", "name": "Pro", "price": 99.0}
    for _ in range(2):  # a confirmation that is sent again changes nothing
        confirmed = await confirm(client, asked)
        assert (confirmed.status_code, confirmed.json()["plan"]["id"]) == (200, "pro")
    assert await plan(client, auth) == "pro annual"
    entries = (await client.get("/audit", headers=auth)).json()["data"]
    made = [(one["action"], one["actor"]) for one in entries if "plan" in one["action"]]
    assert made == [("plan.subscribed", "payments")]


async def test_a_signed_confirmation_is_applied_once(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments
) -> None:
    """A recorded upgrade, sent again after the downgrade, also with a fresh signature of its id."""
    await subscribe(client, auth)
    asked = payments.events[0]["data"]
    free = {**asked, "plan": {"id": "free"}, "billing_cycle": "monthly"}
    for change in (asked, free):
        assert (await confirm(client, change)).status_code == 200
    for late_s in (0, 200, -200):
        replayed = await confirm(client, asked, late_s=late_s)
        assert (replayed.status_code, replayed.json()["plan"]["id"]) == (200, "free")
    assert await plan(client, auth) == "free monthly"
    assert (await confirm(client, asked, message="evt_2")).status_code == 200
    assert await plan(client, auth) == "pro annual"


async def test_a_confirmation_that_failed_may_be_sent_again(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    payments: Payments,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await subscribe(client, auth)
    asked = payments.events[0]["data"]
    plans = services.platform.subscriptions.plans
    with monkeypatch.context() as patched:
        patched.setitem(plans.__dict__, "plans", plans.plans[:1])
        assert (await confirm(client, asked)).status_code == 404
    assert (await confirm(client, asked)).status_code == 200
    assert await plan(client, auth) == "pro annual"


async def test_a_confirmation_without_an_id_is_refused(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments
) -> None:
    await subscribe(client, auth)
    refused = await confirm(client, payments.events[0]["data"], message="")
    assert refused.status_code == 401


async def test_concurrent_confirmations_change_the_plan_once(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments
) -> None:
    await subscribe(client, auth)
    asked = payments.events[0]["data"]
    answers = await asyncio.gather(*(confirm(client, asked) for _ in range(4)))
    assert {one.status_code for one in answers} == {200}
    entries = (await client.get("/audit", headers=auth)).json()["data"]
    assert [one["action"] for one in entries].count("plan.subscribed") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"secret": "whsec_" + b64encode(bytes(32)).decode()},
        {"late_s": 400},
        {"late_s": -400},
    ],
    ids=["of another secret", "old", "of the future"],
)
async def test_a_confirmation_without_a_valid_signature_is_401_and_changes_nothing(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments, change: dict[str, Any]
) -> None:
    await subscribe(client, auth)
    asked = payments.events[0]["data"]
    refused = await confirm(client, asked, **change)
    assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
    body = {"workspace": asked["workspace"], **PRO}
    by_tenant = await client.post("/billing/confirmations", json=body, headers=auth)
    assert by_tenant.status_code == 401
    assert await plan(client, auth) == "free monthly"


async def test_a_confirmation_whose_signature_is_not_ascii_is_401(
    client: httpx.AsyncClient,
) -> None:
    headers = {b"webhook-signature": b"v1,\xff", b"webhook-timestamp": b"%d" % time.time()}
    body = {"workspace": "1", **PRO}
    answer = await client.post("/billing/confirmations", json=body, headers=headers)
    assert answer.status_code == 401


UNKNOWN = {"workspace": "7", "plan": {"id": "pro"}, "billing_cycle": "monthly"}


@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ({}, 404, "not_found"),
        ({"plan": {"id": "gold"}}, 404, "plan_not_found"),
        ({"workspace": "x"}, 400, "validation_error"),
        ({"workspace": "9" * 17}, 400, "validation_error"),
        ({"billing_cycle": "weekly"}, 400, "validation_error"),
    ],
)
async def test_a_confirmation_for_what_does_not_exist_is_refused(
    client: httpx.AsyncClient, change: dict[str, Any], status: int, error: str
) -> None:
    answer = await confirm(client, UNKNOWN | change)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


@pytest.mark.parametrize(
    ("status", "expected", "error"),
    [
        (402, 403, "plan_change_refused"),
        (500, 503, "unavailable"),
        (302, 503, "unavailable"),
    ],
)
async def test_a_change_that_the_payment_system_does_not_take_is_an_error(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    payments: Payments,
    status: int,
    expected: int,
    error: str,
) -> None:
    payments.status = status
    answer = await subscribe(client, auth)
    assert (answer.status_code, answer.json()["error"]) == (expected, error)
    assert await plan(client, auth) == "free monthly"


@pytest.mark.parametrize("body", [[], {"checkout_url": "javascript:alert(1)"}, "x", None])
async def test_an_answer_without_a_web_address_to_pay_at_has_none(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments, body: Any
) -> None:
    payments.body = body
    answer = await subscribe(client, auth)
    assert answer.status_code == 201 and "checkout_url" not in answer.json()


async def test_a_payment_system_that_is_down_is_503(settings: Settings, payments: Payments) -> None:
    webhook = PlanWebhook("http://127.0.0.1:1/", SECRET)
    down = local_services(replace(settings, plan_changes="webhook", plan_webhook=webhook))
    key = await down.platform.accounts.ensure_first_workspace()
    async with client_of(create_app(down)) as client:
        answer = await subscribe(client, {"Authorization": f"Bearer {key}"})
    down.infrastructure.database.close()
    assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
    assert "Retry-After" in answer.headers


async def test_an_unknown_plan_is_404_and_not_sent_to_the_payment_system(
    client: httpx.AsyncClient, auth: dict[str, str], payments: Payments
) -> None:
    answer = await subscribe(client, auth, plan_id="gold")
    assert (answer.status_code, answer.json()["error"]) == (404, "plan_not_found")
    assert payments.events == []


async def test_where_the_operator_changes_plans_workspaces_cannot(
    services: Services, auth: dict[str, str], payments: Payments
) -> None:
    closed = with_platform(services, plan_changes="operator", payments=None)
    async with client_of(create_app(closed)) as client:
        answer = await subscribe(client, auth)
        assert (answer.status_code, answer.json()["error"]) == (403, "plan_change_refused")
        assert "operator" in answer.json()["message"]
        assert (await confirm(client, UNKNOWN)).status_code == 404
        assert await plan(client, auth) == "free monthly"
    assert payments.events == []
