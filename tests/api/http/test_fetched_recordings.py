"""Recordings by their address: only allowed addresses are fetched, and a slow server keeps no place
of a route from others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.services import Services
from pipelines.webhooks import sender as sender_module
from tests.api.http.test_slow_bodies import limited
from tests.api.in_process import client_of
from tests.api.native.jobs.doing import recording
from tests.patience import PATIENCE_S
from tests.pipelines.webhooks.dripping import DrippingServer
from tests.pipelines.webhooks.receivers import Authority, receiver

Headers = dict[str, str]


def listen(url: str) -> dict[str, Any]:
    return {"url": "/v1/listen", "json": {"url": url}}


def scribe(url: str) -> dict[str, Any]:
    form = {"model_id": "scribe_v1", "source_url": url}
    return {"url": "/v1/speech-to-text", "data": form, "files": {"x": (None, "")}}


def tool(url: str) -> dict[str, Any]:
    params = {"name": "transcribe", "arguments": {"url": url}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    return {"url": "/mcp", "json": call, "headers": accept}


@asynccontextmanager
async def server_of(services: Services, folder: Path) -> AsyncIterator[tuple[DrippingServer, str]]:
    """A server whose address the services allow."""
    authority, server = Authority.make(folder), DrippingServer(recording(2))
    webhooks: Any = services.platform.webhooks
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhooks, "_allowed", authority.settings().allowed_networks)
        patch.setattr(webhooks, "_settings", authority.settings())
        async with receiver(authority, server.answer) as there:
            yield server, there.url.rstrip("/")


@pytest.mark.parametrize("asked", [listen, scribe, tool])
async def test_a_recording_is_fetched_by_the_guarded_client(
    asked: Any, client: httpx.AsyncClient, services: Services, auth: Headers, tmp_path: Path
) -> None:
    async def post(address: str) -> httpx.Response:
        request = asked(address)
        request["headers"] = {**request.get("headers", {}), **auth}
        return await client.post(**request)

    for inside in ("http://example.com/a", "https://localhost/a", "ftp://a.b/c", "file:///a", "x"):
        assert "invalid_url" in (await post(inside)).text, inside
    async with server_of(services, tmp_path) as (_, url):
        answer = await post(f"{url}/whole.wav")
        assert "the quick brown fox" in answer.text
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(services.platform.webhooks, "_allowed", ())
            assert "invalid_url" in (await post(f"{url}/whole.wav")).text


@pytest.mark.parametrize("asked", [listen, scribe, tool])
async def test_a_server_that_drips_keeps_no_place_of_a_route_from_others(
    asked: Any, services: Services, auth: Headers, tmp_path: Path
) -> None:
    path = asked("")["url"]
    narrow = limited(services, work_per_core={path: 1}, lasting_per_core={})
    client = client_of(create_app(narrow))
    async with client, server_of(services, tmp_path) as (server, url):

        async def post(address: str) -> httpx.Response:
            request = asked(address)
            request["headers"] = {**request.get("headers", {}), **auth}
            return await client.post(**request)

        slow = asyncio.create_task(post(f"{url}/drip"))
        async with asyncio.timeout(PATIENCE_S):
            await server.has_dripped.wait()
        answer = await post(f"{url}/whole.wav")
        assert answer.status_code == 200 and not slow.done(), answer.text
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)


async def test_a_server_slower_than_the_least_pace_is_refused(
    client: httpx.AsyncClient,
    services: Services,
    auth: Headers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender_module, "FETCH_GRACE_S", 0.3)
    async with server_of(services, tmp_path) as (_, url):
        answer = await client.post(headers=auth, **listen(f"{url}/drip"))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_url")
    assert "more slowly than 125 kB a second" in answer.json()["err_msg"]
