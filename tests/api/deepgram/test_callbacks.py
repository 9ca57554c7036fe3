"""`callback` of a recording: a job whose transcript is sent to an address, once."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from api.services import Services
from db.database import utc_now
from db.retention import delete_old_callbacks
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.dispatcher import WebhookDispatcher
from pipelines.webhooks.sender import Sender
from tests.api.deepgram.test_recordings import SCRIPT, TALK, listen
from tests.api.money import Books
from tests.api.native.jobs.doing import do_next
from tests.pipelines.webhooks.conftest import settle
from tests.pipelines.webhooks.receivers import Authority, Received, receiver

Headers = dict[str, str]


class Callbacks:
    """A receiver, and the dispatcher that delivers to it."""

    def __init__(self, url: str, dispatcher: WebhookDispatcher, requests: list[Any]) -> None:
        self.url = url
        self.dispatcher = dispatcher
        self.requests = requests  # methods and paths
        self.received: list[Received] = []

    async def deliver(self) -> list[Received]:
        while await self.dispatcher.start_due():
            await settle(self.dispatcher)
        return self.received


@pytest.fixture
async def callbacks(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callbacks]:
    requests: list[Any] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        requests.append((request.method, request.path_qs))
        return web.Response(status=200)

    authority = Authority.make(tmp_path)
    settings = authority.settings()
    monkeypatch.setattr(services.platform.webhooks, "_allowed", settings.allowed_networks)
    infrastructure = services.infrastructure
    encryption = Encryption(infrastructure.settings.secrets.data_keys)
    async with receiver(authority, answer) as there, aclosing(Sender(settings)) as sender:
        dispatcher = WebhookDispatcher(infrastructure.database, encryption, sender)
        callbacks = Callbacks(there.url.rstrip("/"), dispatcher, requests)
        callbacks.received = there.received
        yield callbacks


@pytest.fixture
def token(auth: Headers) -> Headers:
    return {"Authorization": auth["Authorization"].replace("Bearer", "Token")}


async def test_the_transcript_is_sent_to_the_address_later(
    client: httpx.AsyncClient,
    token: Headers,
    auth: Headers,
    services: Services,
    books: Books,
    callbacks: Callbacks,
) -> None:
    address = f"{callbacks.url}?of=mine".replace("https://", "https://ann:s%40fe@")
    query = {"callback": address, "callback_method": "PUT", "tag": "t", "replace": "quick:slow"}
    answer = await listen(client, token, TALK, **query)
    assert answer.json() == {"request_id": answer.headers["X-Request-Id"]}, answer.text
    assert await callbacks.deliver() == [] and await books.charged("stt") == (0, 0)
    assert (await client.get("/webhooks", headers=auth)).json()["webhooks"] == []
    await do_next(services)
    (message,) = await callbacks.deliver()
    assert callbacks.requests == [("PUT", "/hook?of=mine")]
    password = base64.b64encode(b"ann:s@fe").decode()
    assert message.headers["authorization"] == f"Basic {password}"
    assert message.headers["dg-token"] and "webhook-signature" not in message.headers
    body = json.loads(message.body)
    assert body["metadata"]["request_id"] == answer.json()["request_id"]
    assert body["metadata"]["sha256"] == hashlib.sha256(TALK).hexdigest()
    assert body["metadata"]["tags"] == ["t"]
    (channel,) = body["results"]["channels"]
    assert channel["alternatives"][0]["transcript"] == SCRIPT.replace("quick", "slow")
    assert (await books.charged("stt"))[0] == 6000
    assert len(await callbacks.deliver()) == 1
    (job,) = (await client.get("/jobs", headers=auth)).json()["data"]
    assert (job["name"], job["status"]) == (answer.json()["request_id"], "completed")
    database = services.infrastructure.database
    assert await database.run(delete_old_callbacks, utc_now()) == 1


async def test_a_failed_job_sends_its_error(
    client: httpx.AsyncClient,
    token: Headers,
    services: Services,
    books: Books,
    callbacks: Callbacks,
) -> None:
    answer = await listen(client, token, b"no audio", callback=callbacks.url)
    await do_next(services)
    (message,) = await callbacks.deliver()
    body = json.loads(message.body)
    assert (body["request_id"], body["err_code"]) == (answer.json()["request_id"], "invalid_audio")
    assert body["err_msg"] and await books.charged("stt") == (0, 0)


async def test_addresses_inside_and_browser_tokens_are_refused(
    client: httpx.AsyncClient, token: Headers, auth: Headers, callbacks: Callbacks
) -> None:
    inside = ("http://example.com/hook", "ftp://a.b", "https://", "https://a b", "https://u:p@")
    for address in inside:
        refused = await listen(client, token, TALK, callback=address)
        assert refused.status_code == 400, address
        assert refused.json()["err_msg"].startswith("callback: ")
    granted = (await client.post("/v1/auth/grant", headers=token)).json()["access_token"]
    visitor = {"Authorization": f"Bearer {granted}"}
    refused = await listen(client, visitor, TALK, callback=callbacks.url)
    assert refused.status_code == 403
    url = {"url": "https://example.com/a.wav"}
    refused = await client.post(
        "/v1/listen",
        headers=token,
        json=url,
        params={"callback": callbacks.url, "encoding": "linear16", "sample_rate": 8000},
    )
    assert refused.status_code == 400 and refused.json()["err_msg"].startswith("encoding: ")
    assert (await client.get("/jobs", headers=auth)).json()["data"] == []
