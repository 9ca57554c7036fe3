"""The operator's routes: who may call them, credit, plans, and deployments of models."""

import json
import logging
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from antiphon.version import __version__
from api.app import create_app
from api.services import Services
from configs.settings import Settings
from pipelines.errors import InvalidRequest
from tests.api.in_process import client_of
from tests.api.local_server import OPERATOR_TOKEN, local_settings
from tests.api.replaced import with_infrastructure, with_request_limits

Headers = dict[str, str]

OPERATOR = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}
OPERATIONS = [
    ("GET", "/operator/overview"),
    ("GET", "/operator/workspaces"),
    ("POST", "/operator/workspaces/1/credit"),
    ("POST", "/operator/workspaces/1/plan"),
    ("GET", "/operator/config"),
    ("POST", "/operator/deploy"),
]


@dataclass
class Control:
    """Refuses what is no configuration, fails at what is broken; keeps what it deployed."""

    links: dict[str, str] = field(default_factory=lambda: {"ray": "http://127.0.0.1:8265"})
    deployed: list[str] = field(default_factory=list)

    async def running(self) -> str:
        return "applications: []\n"

    async def failures(self) -> dict[str, str]:
        return {"Chat": "no GPU"}

    async def deploy(self, config: str, *, only_check: bool) -> tuple[bool, str]:
        if "applications" not in config:
            raise InvalidRequest("the configuration holds no configuration of Ray Serve")
        if "broken" in config:
            return False, "svc/broken: its weights are missing"
        self.deployed += [config] * (not only_check)
        return True, "nothing changes"


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    return local_settings(tmp_path, operator_token=OPERATOR_TOKEN)


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def services(services: Services, control: Control) -> Services:
    return with_infrastructure(services, cluster=control)


async def post(client: httpx.AsyncClient, path: str, body: Any) -> httpx.Response:
    return await client.post(f"/operator/{path}", headers=OPERATOR, json=body)


async def rows(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await client.get("/operator/workspaces", headers=OPERATOR, params=query)
    found: list[dict[str, Any]] = answer.raise_for_status().json()["workspaces"]
    return found


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_without_an_operator_token_there_is_nothing(
    services: Services, tmp_path: Any, method: str, path: str
) -> None:
    app = create_app(with_infrastructure(services, settings=local_settings(tmp_path)))
    async with client_of(app) as client:
        answer = await client.request(method, path, headers=OPERATOR, content="no JSON")
        unknown = await client.request(method, "/nothing", headers=OPERATOR)
    assert (answer.status_code, answer.json()) == (404, unknown.json())


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
async def test_only_the_operators_token_is_admitted(
    client: httpx.AsyncClient, auth: Headers, method: str, path: str
) -> None:
    for headers in ({}, auth, {"Authorization": "Bearer wrong"}, {"Authorization": OPERATOR_TOKEN}):
        answer = await client.request(method, path, headers=headers, content="no JSON")
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized")
    assert (await client.get("/plans", headers=OPERATOR)).status_code == 401


async def test_only_wrong_tokens_of_an_address_are_limited(
    services: Services,
) -> None:
    admission = services.platform.request_limits.admission
    few = admission.model_copy(update={"unknown_keys_per_minute": 3})
    app = create_app(with_request_limits(services, admission=few))
    async with client_of(app) as client:
        wrong = {"Authorization": "Bearer wrong"}
        statuses = [
            (await client.get("/operator/overview", headers=wrong)).status_code for _ in range(5)
        ]
        assert statuses == [401, 401, 401, 429, 429]
        assert (await client.get("/operator/overview", headers=OPERATOR)).status_code == 200


async def test_the_overview_has_models_links_and_what_is_wrong(
    client: httpx.AsyncClient, services: Services
) -> None:
    services.infrastructure.models.problems["speaker"] = "no memory"  # type: ignore[index]
    found = (await client.get("/operator/overview", headers=OPERATOR)).json()
    assert found["version"] == __version__
    assert found["links"] == {"ray": "http://127.0.0.1:8265"}
    assert {one["kind"] for one in found["models"].values()} == {"tts", "stt", "chat", "embedding"}
    assert {one["status"] for one in found["models"].values()} == {"ready"}
    assert found["problems"] == {"speaker": "no memory"}
    assert found["failures"] == {"Chat": "no GPU"}
    assert found["differences"] == {}


async def test_the_operators_token_opens_the_metrics(client: httpx.AsyncClient) -> None:
    page = await client.get("/metrics", headers=OPERATOR)
    assert page.status_code == 200 and "antiphon_http_requests_live" in page.text
    wrong = await client.get("/metrics", headers={"Authorization": "Bearer wrong"})
    assert wrong.status_code == 404


async def test_workspaces_are_listed_in_pages_and_found_by_address_name_and_id(
    client: httpx.AsyncClient, other_auth: Headers
) -> None:
    for number in range(3):
        body = {"email": f"u{number}@example.com", "password": "another password"}
        await client.post("/auth/signup", json={**body, "name": f"100% {number}"})
    everyone = await rows(client)
    assert len(everyone) == 5
    assert [int(one["id"]) for one in everyone] == sorted(int(one["id"]) for one in everyone)
    paged, after = [], "0"
    while after is not None:
        query: dict[str, Any] = {"after": after, "limit": 2}
        page = await client.get("/operator/workspaces", headers=OPERATOR, params=query)
        paged += page.json()["workspaces"]
        after = page.json()["next"]
    assert paged == everyone
    (found,) = await rows(client, q="OTHER@example")
    assert (found["email"], found["plan"], found["credit"]) == ("other@example.com", "free", 5.0)
    assert [one["email"] for one in await rows(client, q=found["id"])] == ["other@example.com"]
    assert len(await rows(client, q="100%")) == 3
    assert await rows(client, q="_%") == []
    for wrong in ({"limit": 101}, {"after": -1}, {"after": 10**30}, {"q": "x" * 255}):
        answer = await client.get("/operator/workspaces", headers=OPERATOR, params=wrong)
        assert answer.status_code == 400


async def test_credit_is_booked_once_for_a_reference_and_audited(
    client: httpx.AsyncClient, other_auth: Headers
) -> None:
    (mine,) = await rows(client, q="other@example.com")
    path = f"workspaces/{mine['id']}/credit"
    paid = {"usd": 25.5, "reference": "invoice-7"}
    assert (await post(client, path, paid)).json() == {"credit": 30.5, "changed": True}
    assert (await post(client, path, paid)).json() == {"credit": 30.5, "changed": False}
    assert (await post(client, path, {"usd": -0.000001})).json()["credit"] == 30.499999
    log = (await client.get("/audit", headers=other_auth)).json()["data"]
    entries = [(one["action"], one["actor"], one["details"]) for one in log[:2]]
    assert entries == [
        ("credit.changed", "operator", {"micro_usd": -1}),
        ("credit.changed", "operator", {"micro_usd": 25_500_000}),
    ]
    assert log[1]["target"] == "operator:invoice-7"


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ('{"usd": NaN}', "invalid_json", "NaN"),
        ('{"usd": "NaN"}', "validation_error", "usd"),
        ('{"usd": 1e999}', "invalid_json", "large"),
        ('{"usd": 1e300}', "validation_error", "usd"),
        ('{"usd": 0.0000001}', "validation_error", "usd"),
        ('{"usd": 1, "reference": ""}', "validation_error", "reference"),
        ('{"usd": 1, "reference": "%s"}' % ("x" * 51), "validation_error", "reference"),
        ('{"usd": -5.000001}', "validation_error", "keeps 5.000000 USD"),
        ("{}", "validation_error", "usd"),
    ],
)
async def test_a_wrong_change_of_credit_changes_nothing(
    client: httpx.AsyncClient, auth: Headers, body: str, error: str, said: str
) -> None:
    (mine,) = await rows(client)
    headers = {**OPERATOR, "Content-Type": "application/json"}
    path = f"/operator/workspaces/{mine['id']}/credit"
    answer = await client.post(path, headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert said in answer.json()["message"]
    assert await rows(client) == [mine]


async def test_a_plan_is_changed_at_once_and_audited(
    client: httpx.AsyncClient, other_auth: Headers
) -> None:
    (mine,) = await rows(client, q="other@example.com")
    path = f"workspaces/{mine['id']}/plan"
    answer = await post(client, path, {"plan_id": "pro", "billing_cycle": "annual"})
    assert (answer.json()["plan"]["id"], answer.json()["billing_cycle"]) == ("pro", "annual")
    current = await client.get("/billing/current-plan", headers=other_auth)
    assert current.json()["plan"]["id"] == "pro"
    newest = (await client.get("/audit", headers=other_auth)).json()["data"][0]
    assert (newest["action"], newest["actor"]) == ("plan.subscribed", "operator")
    assert (await post(client, path, {"plan_id": "gold"})).json()["error"] == "plan_not_found"
    for body in ({}, {"plan_id": "pro", "billing_cycle": "daily"}):
        assert (await post(client, path, body)).status_code == 400


@pytest.mark.parametrize("part", ["credit", "plan"])
async def test_a_workspace_that_is_not_there_is_404_and_no_number_400(
    client: httpx.AsyncClient, part: str
) -> None:
    body = {"usd": 1, "plan_id": "pro"}
    assert (await post(client, f"workspaces/1/{part}", body)).status_code == 404
    for wrong in ("0", "-1", "x", str(2**70)):
        assert (await post(client, f"workspaces/{wrong}/{part}", body)).status_code == 400


async def test_a_configuration_is_checked_and_deployed(
    client: httpx.AsyncClient, control: Control
) -> None:
    shown = await client.get("/operator/config", headers=OPERATOR)
    running = shown.json()["config"]
    checked = await post(client, "deploy", {"config": running, "dry_run": True})
    assert checked.json() == {"ok": True, "output": "nothing changes"} and not control.deployed
    assert (await post(client, "deploy", {"config": running})).json()["ok"] is True
    assert control.deployed == [running]
    wrong = await post(client, "deploy", {"config": "a: b"})
    assert (wrong.status_code, wrong.json()["error"]) == (400, "validation_error")
    assert wrong.json()["message"].endswith("holds no configuration of Ray Serve")
    huge = await post(client, "deploy", {"config": "applications:" + " " * (1 << 18)})
    assert (huge.status_code, huge.json()["error"]) == (400, "file_too_large")
    for body in ({}, {"config": ""}, {"config": 5}, {"config": running, "dry_run": "no"}):
        assert (await post(client, "deploy", body)).status_code == 400
    assert control.deployed == [running]


async def test_without_a_cluster_nothing_is_deployed(services: Services) -> None:
    app = create_app(with_infrastructure(services, cluster=None))
    async with client_of(app) as client:
        answer = await post(client, "deploy", {"config": "applications: []"})
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert (await client.get("/operator/config", headers=OPERATOR)).status_code == 503
        found = await client.get("/operator/overview", headers=OPERATOR)
        assert (found.status_code, found.json()["links"]) == (200, {})


async def test_the_token_is_neither_logged_nor_answered(
    client: httpx.AsyncClient,
    settings: Settings,
    services: Services,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        for method, path in OPERATIONS:
            answer = await client.request(method, path, headers=OPERATOR)
            assert OPERATOR_TOKEN not in answer.text
        logging.getLogger("test").warning(f"OPERATOR_TOKEN={OPERATOR_TOKEN} %s", settings)
    page = await client.get("/console")
    assert OPERATOR_TOKEN not in page.text + caplog.text + repr(settings)


async def test_the_document_has_the_routes_under_a_scheme_of_their_own(
    client: httpx.AsyncClient,
) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["operator"]["scheme"] == "bearer"
    for method, path in OPERATIONS:
        operation = document["paths"][path.replace("/1/", "/{workspace_id}/")][method.lower()]
        assert operation["security"] == [{"operator": []}], path
        assert operation["tags"] == ["operator"] and "409" not in operation["responses"]
    assert OPERATOR_TOKEN not in json.dumps(document)
