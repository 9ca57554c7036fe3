"""Webhooks over HTTP: what is registered, changed, listed and refused."""

from dataclasses import replace

import httpx
import pytest
from sqlmodel import select, update

from api.services import Services
from db.audit import audit_chain
from db.database import change_rows
from db.webhooks import Delivery, NewEvent, Webhook, add_event
from tests.api.in_process import client_of
from tests.api.money import principal_of
from tests.api.replaced import with_infrastructure, with_platform
from tests.db.test_webhooks import plain
from tests.openapi import document

Headers = dict[str, str]
NEW = {"url": "https://example.com/hook", "events": ["tts.completed", "voice.ready"]}
SECRET = "whsec_" + "QUFB" * 8


async def register(client: httpx.AsyncClient, headers: Headers, **fields: object) -> httpx.Response:
    return await client.post("/webhooks", headers=headers, json={**NEW, **fields})


async def test_a_webhook_is_registered_listed_and_deleted(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    made = await register(client, auth, secret=SECRET)
    assert made.status_code == 201
    shown = made.json()
    assert set(shown) == {"id", "url", "events", "status", "created_at"}
    assert {**NEW, "status": "active"}.items() <= shown.items()
    assert shown["created_at"].endswith("Z")
    listed = await client.get("/webhooks", headers=auth)
    assert listed.json() == {"webhooks": [shown]}
    assert (await client.get(f"/webhooks/{shown['id']}", headers=auth)).json() == shown
    deleted = await client.delete(f"/webhooks/{shown['id']}", headers=auth)
    assert deleted.status_code == 200 and deleted.json()["success"] is True
    assert (await client.get("/webhooks", headers=auth)).json() == {"webhooks": []}
    again = await client.delete(f"/webhooks/{shown['id']}", headers=auth)
    assert again.status_code == 404 and again.json()["error"] == "not_found"


@pytest.mark.parametrize(
    ("fields", "error", "names"),
    [
        ({"url": "http://example.com/"}, "invalid_url", "url"),
        ({"url": "https://127.0.0.1/"}, "invalid_url", "url"),
        ({"url": "https://localhost/"}, "invalid_url", "url"),
        ({"url": "https://user@example.com/"}, "invalid_url", "url"),
        ({"url": ""}, "validation_error", "url"),
        ({"url": 7}, "validation_error", "url"),
        ({"url": "https://example.com/" + "a" * 2048}, "validation_error", "url"),
        ({"events": []}, "validation_error", "events"),
        ({"events": ["tts.done"]}, "validation_error", "events"),
        ({"events": "tts.completed"}, "validation_error", "events"),
        ({"secret": "short"}, "validation_error", "secret"),
        ({"secret": "whsec_no base64 here"}, "validation_error", "secret"),
        ({"secret": 12345678}, "validation_error", "secret"),
    ],
)
async def test_an_invalid_field_is_named_and_nothing_is_registered(
    client: httpx.AsyncClient, auth: Headers, fields: dict[str, object], error: str, names: str
) -> None:
    answer = await register(client, auth, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"] == error and answer.json()["message"].startswith(names)
    assert (await client.get("/webhooks", headers=auth)).json() == {"webhooks": []}


async def test_a_webhook_to_our_own_host_is_refused(services: Services, auth: Headers) -> None:
    from api.app import create_app
    from pipelines.storage.encryption import Encryption
    from pipelines.webhooks.registration import Webhooks

    settings = replace(services.infrastructure.settings, public_url="https://speech.example.com")
    webhooks = Webhooks(
        services.infrastructure.database, Encryption(settings.secrets.data_keys), settings
    )
    app = create_app(
        with_platform(with_infrastructure(services, settings=settings), webhooks=webhooks)
    )
    async with client_of(app) as client:
        answer = await register(client, auth, url="https://speech.example.com/hook")
        assert answer.json()["error"] == "invalid_url"


async def test_a_webhook_secret_is_encrypted_and_never_returned(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    made = await register(client, auth, secret=SECRET)
    stored = await services.infrastructure.database.read(
        lambda session: session.exec(select(Webhook.secret)).one()
    )
    assert stored is not None and SECRET.encode() not in stored
    for path in ("/webhooks", f"/webhooks/{made.json()['id']}"):
        assert SECRET not in (await client.get(path, headers=auth)).text


async def test_webhooks_are_limited_to_twenty(client: httpx.AsyncClient, auth: Headers) -> None:
    for _ in range(20):
        assert (await register(client, auth)).status_code == 201
    answer = await register(client, auth)
    assert answer.status_code == 400 and "at most 20" in answer.json()["message"]


async def test_a_patch_changes_only_its_fields(client: httpx.AsyncClient, auth: Headers) -> None:
    webhook = (await register(client, auth)).json()
    path = f"/webhooks/{webhook['id']}"
    for change in (
        {"status": "inactive"},
        {"events": ["stt.failed"]},
        {"url": "https://other.example.com/"},
        {"status": "active", "secret": SECRET},
        {},
    ):
        answer = await client.patch(path, headers=auth, json=change)
        expected = {**webhook, **{k: v for k, v in change.items() if k != "secret"}}
        assert answer.status_code == 200 and answer.json() == expected
        webhook = answer.json()
    wrongs: list[dict[str, object]] = [
        {"url": "http://x.com"},
        {"status": "paused"},
        {"events": []},
    ]
    for wrong in wrongs:
        assert (await client.patch(path, headers=auth, json=wrong)).status_code == 400


@pytest.mark.parametrize("field", ["url", "events", "secret", "status"])
async def test_null_in_a_patch_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, auth: Headers, services: Services, field: str
) -> None:
    webhook = (await register(client, auth, secret=SECRET)).json()
    stored = await services.infrastructure.database.read(
        lambda session: session.exec(select(Webhook)).one()
    )
    answer = await client.patch(
        f"/webhooks/{webhook['id']}", headers=auth, json={"status": "inactive", field: None}
    )
    assert answer.status_code == 400 and answer.json()["error"] == "validation_error"
    assert answer.json()["message"].startswith(f"{field}: must not be null")
    assert (
        await services.infrastructure.database.read(
            lambda session: session.exec(select(Webhook)).one()
        )
        == stored
    )
    shown = document()["components"]["schemas"]["ChangedWebhook"]
    assert "null" not in str(shown["properties"]) and "required" not in shown


async def test_deliveries_are_paginated_and_can_be_redelivered(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    webhook = (await register(client, auth)).json()
    path = f"/webhooks/{webhook['id']}"
    tested = await client.post(f"{path}/test", headers=auth)
    assert tested.status_code == 200 and tested.json()["event"] == "tts.completed"
    principal = await principal_of(services, auth)
    event = NewEvent("voice.ready", {"id": "v"})
    event_id = await services.infrastructure.database.run(
        add_event, principal.workspace_id, event, plain
    )
    page = (await client.get(f"{path}/deliveries?limit=1", headers=auth)).json()
    assert page["pagination"] == {"page": 1, "limit": 1, "total": 2, "pages": 2}
    (newest,) = page["data"]
    assert (newest["event_id"], newest["status"], newest["attempts"]) == (event_id, "pending", [])
    assert newest["next_attempt_at"] is not None
    again = await client.post(f"{path}/deliveries/{newest['id']}/redeliver", headers=auth)
    assert again.status_code == 200 and again.json()["status"] == "pending"
    await client.patch(path, headers=auth, json={"status": "inactive"})
    cancelled = await client.get(f"{path}/deliveries?status=cancelled", headers=auth)
    assert cancelled.json()["pagination"]["total"] == 2
    for ending in ("/test", f"/deliveries/{newest['id']}/redeliver"):
        refused = await client.post(path + ending, headers=auth)
        assert refused.status_code == 400 and "inactive" in refused.json()["message"]


async def test_a_message_has_at_most_a_hundred_attempts(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    path = f"/webhooks/{(await register(client, auth)).json()['id']}"
    delivery = (await client.post(f"{path}/test", headers=auth)).json()["id"]
    again = f"{path}/deliveries/{delivery}/redeliver"
    for attempts, status in ((99, 200), (100, 400)):
        made = update(Delivery).values(attempt=attempts)
        await services.infrastructure.database.run(change_rows, made)
        answer = await client.post(again, headers=auth)
        assert answer.status_code == status, answer.text


async def test_tests_and_redeliveries_together_have_a_rate_limit_for_each_workspace(
    client: httpx.AsyncClient, auth: Headers, other_auth: Headers, services: Services
) -> None:
    path = f"/webhooks/{(await register(client, auth)).json()['id']}"
    others = f"/webhooks/{(await register(client, other_auth)).json()['id']}"
    delivery = (await client.post(f"{path}/test", headers=auth)).json()["id"]
    again = f"{path}/deliveries/{delivery}/redeliver"
    for sent in range(1, services.platform.request_limits.admission.webhook_sends_per_minute):
        answer = await client.post(again if sent % 2 else f"{path}/test", headers=auth)
        assert answer.status_code == 200, sent
    for ending in (again, f"{path}/test"):
        refused = await client.post(ending, headers=auth)
        assert (refused.status_code, refused.json()["error"]) == (429, "rate_limited")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
        assert "webhooks" in refused.json()["message"]
    assert (await client.get(f"{path}/deliveries", headers=auth)).status_code == 200
    assert (await client.post(f"{others}/test", headers=other_auth)).status_code == 200


async def test_a_malformed_id_is_not_found(client: httpx.AsyncClient, auth: Headers) -> None:
    for method, ending in (("GET", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries")):
        answer = await client.request(method, f"/webhooks/none{ending}", headers=auth)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_a_delivery_of_another_webhook_is_not_found(
    client: httpx.AsyncClient, auth: Headers
) -> None:
    first, second = [(await register(client, auth)).json()["id"] for _ in range(2)]
    delivery = (await client.post(f"/webhooks/{first}/test", headers=auth)).json()["id"]
    path = f"/webhooks/{second}/deliveries/{delivery}/redeliver"
    assert (await client.post(path, headers=auth)).status_code == 404


async def test_subscription_checks_see_webhook_changes_at_once(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    principal = await principal_of(services, auth)

    async def wants() -> bool:
        return await services.platform.webhooks.events.wants(principal.workspace_id, "voice.ready")

    assert not await wants()
    webhook = (await register(client, auth)).json()["id"]
    assert await wants()
    await client.patch(f"/webhooks/{webhook}", headers=auth, json={"status": "inactive"})
    assert not await wants()
    await client.patch(f"/webhooks/{webhook}", headers=auth, json={"status": "active"})
    assert await wants()
    await client.delete(f"/webhooks/{webhook}", headers=auth)
    assert not await wants()


async def test_webhook_changes_are_in_the_audit_log(
    client: httpx.AsyncClient, auth: Headers, services: Services
) -> None:
    webhook = (await register(client, auth, secret=SECRET)).json()["id"]
    await client.patch(f"/webhooks/{webhook}", headers=auth, json={"status": "inactive"})
    await client.delete(f"/webhooks/{webhook}", headers=auth)
    principal = await principal_of(services, auth)
    chain = await services.infrastructure.database.read(audit_chain, principal.workspace_id)
    found = [entry for entry in chain if entry.target == webhook]
    assert [one.action for one in found] == [
        "webhook.created",
        "webhook.changed",
        "webhook.deleted",
    ]
    assert all(one.actor == principal.actor and SECRET not in str(one.details) for one in found)
