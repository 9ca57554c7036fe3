"""Plans and usage over HTTP."""

from datetime import datetime, timedelta

import httpx
import pytest
from sqlmodel import Session
from starlette.testclient import TestClient

from api.services import Services
from db.billing import ledger
from db.billing.tables import LedgerDay
from db.database import utc_now
from pipelines.billing.operation import Operation
from tests.api.money import principal_of
from tests.clock import WallClock

Headers = dict[str, str]


async def test_a_new_workspace_is_on_the_free_plan(
    client: httpx.AsyncClient, other_auth: Headers
) -> None:
    answer = await client.get("/billing/current-plan", headers=other_auth)
    assert answer.status_code == 200
    body = answer.json()
    assert body["plan"] == {"id": "free", "name": "Free", "price": 0.0}
    assert body["billing_cycle"] == "monthly"
    assert datetime.fromisoformat(body["next_billing_date"]) > utc_now() + timedelta(days=27)


async def test_a_subscription_changes_the_plan_at_once(
    client: httpx.AsyncClient, other_auth: Headers
) -> None:
    wanted = {"plan_id": "pro", "billing_cycle": "annual"}
    answer = await client.post("/billing/subscribe", json=wanted, headers=other_auth)
    assert answer.status_code == 201
    made = answer.json()["subscription"]
    assert made["plan"] == {"id": "pro", "name": "Pro", "price": 99.0}
    assert (made["status"], made["billing_cycle"]) == ("active", "annual")
    current = (await client.get("/billing/current-plan", headers=other_auth)).json()
    assert current == {name: made[name] for name in current}
    again = await client.post("/billing/subscribe", json=wanted, headers=other_auth)
    assert again.json() == answer.json()
    changed = await client.post(
        "/billing/subscribe", json={"plan_id": "starter"}, headers=other_auth
    )
    assert changed.json()["subscription"]["id"] == made["id"]
    assert changed.json()["subscription"]["billing_cycle"] == "monthly"


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"plan_id": "gold"}, 404, "plan_not_found"),
        ({}, 400, "validation_error"),
        ({"plan_id": 7}, 400, "validation_error"),
        ({"plan_id": ""}, 400, "validation_error"),
        ({"plan_id": "pro", "billing_cycle": "weekly"}, 400, "validation_error"),
        ({"plan_id": None}, 400, "validation_error"),
    ],
)
async def test_an_invalid_subscription_is_refused(
    client: httpx.AsyncClient, auth: Headers, body: object, status: int, error: str
) -> None:
    answer = await client.post("/billing/subscribe", json=body, headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (status, error)


async def test_usage_is_summed_by_service_and_day(
    client: httpx.AsyncClient,
    other_auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    WallClock(monkeypatch).set_to_noon()
    caller = await principal_of(services, other_auth)
    hold = services.platform.billing.hold
    for service, units in [("tts", 100), ("tts", 20), ("stt", 2500), ("chat", 7)]:
        held = await hold(caller.workspace_id, service, units, Operation())  # type: ignore[arg-type]
        await held.capture(units)
    await hold(caller.workspace_id, "voice", 1, Operation())  # held, not captured
    answer = await client.get("/billing/usage", headers=other_auth)
    assert answer.status_code == 200
    today = f"{utc_now():%Y-%m-%d}"
    rows = [tuple(item.values()) for item in answer.json()["usage"]]
    assert rows == [
        (today, "chat", None, 7.0, "tokens", 1, 0.00014),
        (today, "stt", None, 2.5, "seconds", 1, 0.00025),
        (today, "tts", None, 120.0, "characters", 2, 0.0018),
    ]
    assert answer.json()["total_cost"] == 0.00219
    assert answer.json()["credit_balance"] == 3.99781


async def test_usage_of_other_days_and_workspaces_is_not_shown(
    client: httpx.AsyncClient,
    auth: Headers,
    other_auth: Headers,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    WallClock(monkeypatch).set_to_noon()
    caller = await principal_of(services, auth)
    held = await services.platform.billing.hold(caller.workspace_id, "tts", 5, Operation())
    await held.capture(5)
    elsewhere = await client.get("/billing/usage", headers=other_auth)
    assert elsewhere.json() == {
        "usage": [],
        "total_cost": 0.0,
        "credit_balance": 5.0,
        "credit_held": 0.0,
        "storage": {"used": 0, "limit": 10**9},
    }
    before = {"from": "2026-01-01", "to": "2026-01-31"}
    assert (await client.get("/billing/usage", params=before, headers=auth)).json()["usage"] == []
    today = f"{utc_now():%Y-%m-%d}"
    for params in ({"from": today}, {"to": "9999-12-31"}, {"from": today, "to": today}):
        answer = await client.get("/billing/usage", params=params, headers=auth)
        assert len(answer.json()["usage"]) == 1, params


@pytest.mark.parametrize(
    "params",
    [
        {"from": "yesterday"},
        {"from": "1700000000"},
        {"from": "2026-02-30"},
        {"to": "2026-01-31T00:00:00"},
        {"to": ""},
        {"from": "2024-01-01", "to": "2025-01-02"},
        {"from": "0001-01-01"},
        {"to": "0001-01-01"},
        {"from": "2026-02-02", "to": "2026-02-01"},
    ],
)
async def test_invalid_date_ranges_of_usage_are_refused(
    client: httpx.AsyncClient, auth: Headers, params: dict[str, str]
) -> None:
    answer = await client.get("/billing/usage", params=params, headers=auth)
    assert (answer.status_code, answer.json()["error"]) == (400, "validation_error"), answer.text


async def test_sign_up_grants_credit_once(
    client: httpx.AsyncClient, other_auth: Headers, services: Services
) -> None:
    caller = await principal_of(services, other_auth)
    assert await services.platform.billing.credit(caller.workspace_id) == 5_000_000
    taken = {"email": "other@example.com", "password": "other password"}
    assert (await client.post("/auth/signup", json=taken)).status_code == 400
    assert await services.platform.billing.credit(caller.workspace_id) == 5_000_000


async def test_sockets_announce_the_credit_balance_without_held_credit(
    auth: Headers, services: Services, app: object
) -> None:
    caller = await principal_of(services, auth)
    hold = await services.platform.billing.hold(caller.workspace_id, "tts", 1000, Operation())
    assert hold.micro_usd == 15_000
    with TestClient(app).websocket_connect("/ws/tts", headers=auth) as socket:  # type: ignore[arg-type]
        socket.receive_json()
        established = socket.receive_json()["connection_established"]
    assert established["credit_balance"] == 4.985


async def test_usage_of_too_many_keys_is_refused(
    client: httpx.AsyncClient,
    auth: dict[str, str],
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer of 100,000 items kept all requests of a gateway waiting for 1.2 s."""
    monkeypatch.setattr(ledger, "MOST_SUMS", 2)
    workspace_id = (await principal_of(services, auth)).workspace_id
    sums = {"amount": -15, "held": 0, "units": 1, "captures": 1, "refunds": 0}
    today = utc_now().date()
    for key_id, status in ((1, 200), (2, 200), (3, 400)):
        key = {"workspace_id": workspace_id, "day": today, "service": "tts", "key_id": key_id}
        row = LedgerDay.model_validate(key | sums)
        await services.infrastructure.database.run(Session.add, row)
        answer = await client.get("/billing/usage?by=key", headers=auth)
        assert answer.status_code == status, answer.text
    assert (await client.get("/billing/usage", headers=auth)).status_code == 200
