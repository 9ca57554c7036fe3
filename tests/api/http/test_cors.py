"""Pages of other origins: `CORS_ORIGINS`."""

from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from configs.settings import Settings
from tests.api.local_server import local_settings

PAGE = "https://app.example"
APPS = ("chrome-extension://knldjmfmopnpolahpmmgbagdohdnhkik", "tauri://localhost")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(local_settings(tmp_path), cors_origins=(PAGE, *APPS), admits_local_pages=True)


async def preflight(client: httpx.AsyncClient, origin: str, **headers: str) -> httpx.Response:
    asks = {
        **headers,
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,idempotency-key",
    }
    return await client.options("/tts-synthesize", headers=asks)


async def test_a_page_of_a_listed_origin_may_send_requests(client: httpx.AsyncClient) -> None:
    answer = await preflight(client, PAGE)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert "idempotency-key" in answer.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in answer.headers  # there are no cookies


@pytest.mark.parametrize("origin", [PAGE, *APPS, "http://localhost:9000"])
async def test_a_private_address_answers_the_browser_that_asks_first(
    client: httpx.AsyncClient, origin: str
) -> None:
    asks = {"Access-Control-Request-Private-Network": "true"}
    answer = await preflight(client, origin, **asks)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == origin
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    refused = await preflight(client, "https://evil.example", **asks)
    assert refused.status_code == 400
    assert "Access-Control-Allow-Origin" not in refused.headers


async def test_pages_of_this_machine_may_send_requests_from_any_port(
    client: httpx.AsyncClient,
) -> None:
    for origin in (
        "http://localhost:9000",
        "http://127.0.0.1:5173",
        "http://[::1]:1",
        "http://localhost",
    ):
        answer = await preflight(client, origin)
        assert answer.headers["Access-Control-Allow-Origin"] == origin


async def test_it_reads_results_errors_and_their_headers(
    client: httpx.AsyncClient, auth: dict[str, str]
) -> None:
    for headers, status in ((auth, 200), ({}, 401)):
        answer = await client.get("/models", headers={**headers, "Origin": PAGE})
        assert answer.status_code == status
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "*" in answer.headers["Access-Control-Expose-Headers"]
        assert answer.headers["X-Request-Id"]


async def test_other_origins_may_not(client: httpx.AsyncClient, auth: dict[str, str]) -> None:
    others = ("https://evil.example", "https://app.example.evil.example", "null")
    local = (
        "http://localhost.evil.example",
        "http://localhost:9000.evil.example",
        "http://127.0.0.2",
    )
    for origin in (*others, *local):
        refused = await preflight(client, origin)
        assert refused.status_code == 400
        answer = await client.get("/models", headers={**auth, "Origin": origin})
        for one in (refused, answer):
            assert "Access-Control-Allow-Origin" not in one.headers
