"""The Prometheus page: who may read it, and the labels of its series."""

from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families as parse
from starlette.types import Receive, Scope, Send

from api.app import create_app
from api.services import Services
from api.sockets.kernel import close_codes
from pipelines.ports import ModelList
from tests.api.replaced import with_infrastructure


@pytest.fixture
def services(services: Services) -> Services:
    """With the PUBLIC_URL of a service for this machine only."""
    settings = replace(services.infrastructure.settings, public_url="http://localhost:8000")
    return with_infrastructure(services, settings=settings)


def scraper(
    app: FastAPI, address: str = "127.0.0.1", url: str = "http://127.0.0.1:8000"
) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, client=(address, 5000))
    return httpx.AsyncClient(transport=transport, base_url=url)


async def value(client: httpx.AsyncClient, name: str, **labels: str) -> float:
    """The sum of the series with those labels."""
    page = (await client.get("/metrics")).text
    return sum(
        sample.value
        for family in parse(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


async def test_requests_are_counted_by_their_route_pattern(
    app: FastAPI, auth: dict[str, str]
) -> None:
    async with scraper(app) as client:
        await client.delete("/developer/api/canary-one", headers=auth)
        await client.delete("/developer/api/canary-two", headers=auth)
        page = (await client.get("/metrics")).text
    counted = [line for line in page.splitlines() if "/developer/api/{" in line and '"404"' in line]
    assert len(counted) == 1 and counted[0].startswith("antiphon_http_requests_total")
    assert "canary" not in page


async def test_unknown_paths_share_one_metric_series(app: FastAPI) -> None:
    async with scraper(app) as client:
        labels = {"route": "none", "status": "404"}
        before = await value(client, "antiphon_http_requests_total", **labels)
        for number in range(3):
            await client.get(f"/nothing-{number}")
        assert await value(client, "antiphon_http_requests_total", **labels) == before + 3


async def test_unknown_http_methods_are_not_in_metric_labels(app: FastAPI) -> None:
    async with scraper(app) as client:
        await client.request("CANARY", "/plans")
        assert "CANARY" not in (await client.get("/metrics")).text


LOOPBACK = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("address", "url", "headers", "status"),
    [
        *[(one, LOOPBACK, {}, 200) for one in ("127.0.0.1", "::1", "::ffff:127.0.0.1")],
        *[
            ("127.0.0.1", url, {}, 200)
            for url in ("http://localhost:8000", "http://127.0.0.9", "http://[::1]:8000")
        ],
        *[
            (address, LOOPBACK, {}, 404)
            for address in ("10.0.0.8", "192.0.2.1", "::ffff:10.0.0.8", "testclient")
        ],
        *[
            ("127.0.0.1", LOOPBACK, {"Host": host}, 404)
            for host in ("speech.example", "10.0.0.8:8000", "localhost.example", "[", "")
        ],
        ("127.0.0.1", LOOPBACK, {"X-Forwarded-For": "192.0.2.1"}, 404),
        ("127.0.0.1", LOOPBACK, {"X-Forwarded-Proto": "https"}, 404),
        ("127.0.0.1", LOOPBACK, {"Forwarded": "for=192.0.2.1"}, 404),
        ("127.0.0.1", LOOPBACK, {"Via": "1.1 proxy"}, 404),
        # nginx with HTTP/1.1 and sockets, and with its own `Host`
        ("127.0.0.1", LOOPBACK, {"Connection": "upgrade"}, 404),
    ],
)
async def test_without_a_token_metrics_are_open_to_this_machine_alone(
    app: FastAPI, address: str, url: str, headers: dict[str, str], status: int
) -> None:
    async with scraper(app, address, url) as client:
        answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"] == "not_found"


async def test_metrics_are_404_through_a_plain_proxy_that_speaks_http_1_0(app: FastAPI) -> None:
    async def proxied(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "http_version": "1.0"}, receive, send)

    transport = httpx.ASGITransport(app=proxied, client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
        assert (await client.get("/metrics")).status_code == 404
        assert (await client.get("/healthz")).status_code == 200


async def test_metrics_need_a_token_behind_the_proxy_of_the_public_url(
    services: Services,
) -> None:
    settings = replace(services.infrastructure.settings, public_url="https://speech.example")
    app = create_app(with_infrastructure(services, settings=settings))
    async with scraper(app) as client:
        assert (await client.get("/metrics")).status_code == 404


async def test_metrics_need_a_token_behind_a_proxy_that_hides_client_addresses(
    services: Services,
) -> None:
    async with scraper(create_app(services, sees_clients=False)) as client:
        assert (await client.get("/metrics")).status_code == 404
    settings = replace(services.infrastructure.settings, metrics_token="t" * 32)
    app = create_app(with_infrastructure(services, settings=settings), sees_clients=False)
    async with scraper(app) as client:
        headers = {"Authorization": f"Bearer {'t' * 32}"}
        assert (await client.get("/metrics", headers=headers)).status_code == 200


async def test_metrics_need_the_token_when_it_is_configured(
    services: Services, auth: dict[str, str]
) -> None:
    settings = replace(services.infrastructure.settings, metrics_token="t" * 32)
    app = create_app(with_infrastructure(services, settings=settings))
    async with scraper(app, "192.0.2.1") as client:
        refused = await client.get("/metrics", headers={"Authorization": "Bearer wrong"})
        bare = await client.get("/metrics")
        keyed = await client.get("/metrics", headers=auth)
        let_in = await client.get("/metrics", headers={"Authorization": f"Bearer {'t' * 32}"})
    assert {answer.status_code for answer in (refused, bare, keyed)} == {401}
    assert let_in.status_code == 200


async def test_a_failed_swap_degrades_readiness_and_is_listed_with_its_reason(
    services: Services, auth: dict[str, str]
) -> None:
    problems: dict[str, str] = {}
    ports = services.infrastructure.models._ports
    models = ModelList(*ports, problems=problems)
    settings = replace(services.infrastructure.settings, metrics_token="t" * 32)
    app = create_app(with_infrastructure(services, models=models, settings=settings))
    name = next(iter(ports[0]))  # of a deployment
    async with scraper(app) as client:
        whole = (await client.get("/models", headers=auth)).json()["data"]
        problems[name] = "tts/none cannot be loaded: why"
        ready = await client.get("/readyz")
        listed = (await client.get("/models", headers=auth)).json()["data"]
        proxy = {"X-Forwarded-For": "192.0.2.1"}
        proxied = await client.get("/readyz", headers=proxy | {"Authorization": "Bearer wrong"})
        token = {"Authorization": f"Bearer {'t' * 32}"}
        operated = await client.get("/readyz", headers=proxy | token)
    assert ready.status_code == 200  # the previous model serves
    expected = {"status": "degraded", "degraded": ["models"]}
    assert ready.json() == expected | {"models": problems}
    assert operated.json() == ready.json()
    assert proxied.json() == expected
    assert {model["problem"] for model in whole} == {None}
    assert [model["problem"] for model in listed if model["problem"]] == [problems[name]]
    assert {model["status"] for model in listed} == {"ready"}


async def test_readiness_reports_which_stores_are_degraded(
    app: FastAPI, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scraper(app) as client:
        chat = (await client.get("/readyz")).json()
        assert chat.pop("chat")["model"] and chat == {"status": "ok", "degraded": []}
        monkeypatch.setattr(services.infrastructure.limits, "degraded", True)
        answer = await client.get("/readyz")
        monkeypatch.setattr(services.infrastructure.files, "degraded", True)
        both = await client.get("/readyz")
    assert (answer.status_code, both.status_code) == (200, 200)
    assert (answer.json()["status"], answer.json()["degraded"]) == ("degraded", ["limits"])
    assert both.json()["degraded"] == ["limits", "files"]


async def test_readiness_names_processes_that_differ_to_this_machine_only(
    services: Services,
) -> None:
    differences = {"STT on 10.0.0.2": "runs other code"}
    models = ModelList(*services.infrastructure.models._ports)  # of which none is for chats
    app = create_app(with_infrastructure(services, differences=differences, models=models))
    async with scraper(app) as client:
        here = await client.get("/readyz")
        proxied = await client.get("/readyz", headers={"X-Forwarded-For": "192.0.2.1"})
    expected = {"status": "degraded", "degraded": ["cluster"]}
    assert here.json() == expected | {"cluster": differences}
    assert proxied.json() == expected


def test_unknown_close_codes_share_one_metric_label() -> None:
    shown = {close_codes.label_of(code) for code in range(1000, 5000)}
    assert "other" in shown and len(shown) < 25
