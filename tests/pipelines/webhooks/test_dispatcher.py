"""Deliveries from the outbox to real TLS receivers, on both databases, with a manual clock."""

import asyncio
import json
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from openai import OpenAI
from sqlmodel import select
from standardwebhooks.webhooks import Webhook as StandardVerifier
from svix.webhooks import Webhook as SvixVerifier

from db import deliveries
from db.deliveries import AttemptResult
from db.webhooks import Event
from pipelines.errors import InvalidRequest
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.dispatcher import AT_ONCE_FOR_ONE, AT_ONCE_FOR_WORKSPACE, WebhookDispatcher
from pipelines.webhooks.registration import WebhookChange
from tests.collector import collecting, tracing_here
from tests.db.rows import rows
from tests.pipelines.webhooks.conftest import SECRET, Tenant, settle
from tests.pipelines.webhooks.receivers import Authority, Held, receiver

DAYS_OF_SCHEDULE = 4


def verifiers(secret: str) -> list[Any]:
    """Verifiers of three third-party libraries; each raises when a signature is wrong."""
    key: str | bytes = secret if secret.startswith("whsec_") else secret.encode()
    client = OpenAI(api_key="none", webhook_secret=secret)
    return [
        StandardVerifier(key).verify,
        SvixVerifier(key).verify,
        lambda body, headers: client.webhooks.verify_signature(body, headers),
    ]


@pytest.mark.parametrize("secret", [SECRET, "eight 8 ünïcode"])
async def test_third_party_verifiers_accept_messages_and_refuse_altered_ones(
    tenant: Tenant, authority: Authority, secret: str
) -> None:
    async with receiver(authority) as hook:
        await tenant.register(hook.url, secret=secret)
        event_id = await tenant.emit(name="Zoë 😀")
        await tenant.deliver()
        (message,) = hook.received
    assert message.id == event_id
    assert message.headers["content-type"] == "application/json"
    assert message.headers["user-agent"].endswith("-webhooks/1")
    assert json.loads(message.body)["data"] == {"id": "v", "name": "Zoë 😀"}
    for verify in verifiers(secret):
        verify(message.body.decode(), message.headers)
        with pytest.raises(Exception, match=r"(?i)signature"):
            verify(message.body.decode() + " ", message.headers)


async def test_a_webhook_without_a_secret_receives_unsigned_messages(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        await tenant.register(hook.url, secret=None)
        event_id = await tenant.emit()
        await tenant.deliver()
        headers = hook.received[0].headers
    assert headers["webhook-id"] == event_id and headers["webhook-timestamp"].isdecimal()
    assert "webhook-signature" not in headers


async def test_a_traced_delivery_carries_its_trace(
    tenant: Tenant, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector, tracing_here(monkeypatch, collector):
        async with receiver(authority, 503) as hook:
            await tenant.register(hook.url)
            await tenant.emit()
            await tenant.deliver()
            headers = hook.received[0].headers
        (span,) = await asyncio.to_thread(
            collector.wait_for, lambda one: one.name == "POST webhook"
        )
    assert headers["traceparent"].startswith(f"00-{span.trace_id}-{span.span_id}-")
    assert (span.kind, span.failed) == ("client", True)
    assert span.attributes["http.response.status_code"] == 503
    assert hook.url.encode() not in collector.raw


@pytest.mark.parametrize("changes", [1, 2])
async def test_during_rotation_both_secrets_verify(
    tenant: Tenant, authority: Authority, changes: int
) -> None:
    newer = "another secret"
    async with receiver(authority) as hook:
        webhook = await tenant.register(hook.url)
        for _ in range(changes):  # a repeated one keeps the old secret valid
            change = WebhookChange(secret=newer)
            await tenant.webhooks.change(tenant.principal, webhook.id, change)
        await tenant.emit()
        await tenant.deliver()
        for verify in verifiers(SECRET) + verifiers(newer):
            verify(hook.received[0].body.decode(), hook.received[0].headers)
        tenant.clock.advance(hours=25)
        await tenant.emit()
        await tenant.deliver()
        assert len(hook.received[1].headers["webhook-signature"].split()) == 1


@pytest.mark.parametrize("status", [400, 404, 500, 503, 302, 199 + 1])
async def test_only_2xx_is_success(tenant: Tenant, authority: Authority, status: int) -> None:
    async with receiver(authority, status) as hook:
        webhook = await tenant.register(hook.url)
        await tenant.emit()
        await tenant.deliver()
        found = await tenant.only(webhook.id)
    assert found.delivery.status == ("delivered" if status == 200 else "pending")
    assert [(one.number, one.status_code, one.error) for one in found.attempts] == [
        (1, status, None)
    ]


async def test_a_delivery_fails_after_ten_attempts_with_the_same_message(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await tenant.register(hook.url)
        event_id = await tenant.emit()
        began = tenant.clock.moment
        waits = []
        while (found := await tenant.listed(webhook.id))[0].delivery.status == "pending":
            due = found[0].delivery.next_at
            waits.append((due - tenant.clock.moment).total_seconds())
            tenant.clock.moment = max(tenant.clock.moment, due)
            await tenant.deliver()
        assert {message.id for message in hook.received} == {event_id}
        assert len({message.body for message in hook.received}) == 1
        assert all(message.headers["webhook-signature"] for message in hook.received)
        moments = [message.headers["webhook-timestamp"] for message in hook.received]
        assert len(hook.received) == 10 and len(set(moments)) == 10
    planned = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert all(0.79 * p <= w <= 1.21 * p for p, w in zip(planned, waits[1:], strict=True)), waits
    assert tenant.clock.moment - began < timedelta(days=DAYS_OF_SCHEDULE)
    assert (await tenant.only(webhook.id)).delivery.status == "failed"
    assert await tenant.status(webhook.id) == "active"


async def test_retry_after_is_honoured_up_to_an_hour(tenant: Tenant, authority: Authority) -> None:
    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=503, headers={"Retry-After": request.query["wait"]})

    async with receiver(authority, busy) as hook:
        for asked, waited in (("600", 600), ("999999", 3600), ("soon", 5)):
            webhook = await tenant.register(f"{hook.url}?wait={asked}", events=("tts.failed",))
            await tenant.emit("tts.failed")
            await tenant.deliver()
            found = (await tenant.only(webhook.id)).delivery
            wait_s = (found.next_at - tenant.clock.moment).total_seconds()
            assert waited * 0.79 <= wait_s <= waited * 1.21, asked
            await tenant.webhooks.delete(tenant.principal, webhook.id)


async def test_status_410_gone_deactivates_the_webhook_at_once(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 410) as hook:
        webhook = await tenant.register(hook.url)
        for _ in range(6):
            await tenant.emit()
        await tenant.deliver()
        assert await tenant.status(webhook.id) == "inactive"
        assert len(hook.received) == 1
        states = [one.delivery.status for one in await tenant.listed(webhook.id)]
        assert sorted(states) == ["cancelled"] * 5 + ["failed"]
        assert await tenant.emit() is None
        assert not await tenant.webhooks.events.wants(tenant.principal.workspace_id, "voice.ready")


async def test_five_days_of_failures_deactivate_a_webhook_until_it_is_activated_again(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await tenant.register(hook.url)
        for _ in range(4):
            await tenant.emit()
            await tenant.deliver()
            assert await tenant.status(webhook.id) == "active"
            tenant.clock.advance(days=1.26)
        await tenant.emit()
        await tenant.deliver()
        assert await tenant.status(webhook.id) == "inactive"
        failed = await tenant.listed(webhook.id)
        with pytest.raises(InvalidRequest, match="inactive"):
            await tenant.webhooks.redeliver(tenant.principal, webhook.id, failed[0].delivery.id)
        change = WebhookChange(status="active")
        await tenant.webhooks.change(tenant.principal, webhook.id, change)
        hook.answer = 200
        hook.received.clear()
        for one in failed:
            await tenant.webhooks.redeliver(tenant.principal, webhook.id, one.delivery.id)
        await tenant.deliver()
        assert len(hook.received) == 5
        states = {one.delivery.status for one in await tenant.listed(webhook.id)}
        assert states == {"delivered"} and await tenant.status(webhook.id) == "active"


async def test_a_success_restarts_the_five_days_before_deactivation(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await tenant.register(hook.url)
        for answer in (500, 500, 200, 500, 500):
            hook.answer = answer
            await tenant.emit()
            await tenant.deliver()
            tenant.clock.advance(days=2.4)
        assert await tenant.status(webhook.id) == "active"


async def test_a_hanging_receiver_does_not_delay_another_one(
    patient: Tenant, authority: Authority
) -> None:
    held = Held()
    async with receiver(authority, held) as dead, receiver(authority) as live:
        await patient.register(dead.url, events=("tts.failed",))
        for _ in range(250):
            await patient.emit("tts.failed")
        await patient.register(live.url, events=("tts.completed",))
        patient.clock.advance(seconds=60)
        async with patient.delivering(held):
            await dead.until(AT_ONCE_FOR_ONE)
            for _ in range(20):
                await patient.emit("tts.completed")
            await live.until(20)
            assert len(dead.received) == AT_ONCE_FOR_ONE


async def test_deliveries_of_a_dead_dispatcher_keep_their_id(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        webhook = await tenant.register(hook.url)
        event_id = await tenant.emit()
        ids = [(await tenant.only(webhook.id)).delivery.id]
        lease = timedelta(seconds=60)
        # Claimed by a dispatcher that died before it stored the outcome.
        claimed = await tenant.database.run(
            deliveries.claim, ids, "of the dead", tenant.clock(), lease
        )
        assert [one.event.id for one in claimed] == [event_id]
        assert await tenant.deliver() == 0
        tenant.clock.advance(seconds=61)
        assert await tenant.deliver() == 1
        assert [message.id for message in hook.received] == [event_id]
        # If that dispatcher was only slow, its late outcome changes nothing.
        attempt = AttemptResult(500, None, 1)
        late = await tenant.database.run(
            deliveries.finish, claimed[0], attempt, tenant.clock(), None, timedelta(days=5)
        )
        assert not late
        assert (await tenant.only(webhook.id)).delivery.status == "delivered"


async def test_several_dispatchers_send_each_message_once(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        await tenant.register(hook.url)
        sent = [await tenant.emit() for _ in range(30)]
        dispatchers = [tenant.dispatcher, *(tenant.another_dispatcher() for _ in range(3))]
        while any(await asyncio.gather(*(one.start_due() for one in dispatchers))):
            await asyncio.gather(*(settle(one) for one in dispatchers))
        assert sorted(message.id for message in hook.received) == sorted(map(str, sent))


async def test_a_deleted_webhook_receives_no_more_messages(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await tenant.register(hook.url)
        await tenant.emit()
        await tenant.deliver()
        await tenant.webhooks.delete(tenant.principal, webhook.id)
        tenant.clock.advance(days=10)
        assert await tenant.deliver() == 0 and len(hook.received) == 1


async def test_a_webhook_can_be_deleted_during_an_attempt(
    tenant: Tenant, authority: Authority
) -> None:
    held = Held()
    async with receiver(authority, held) as hook:
        webhook = await tenant.register(hook.url)
        await tenant.emit()
        assert await tenant.dispatcher.start_due() == 1
        await hook.until(1)
        await tenant.webhooks.delete(tenant.principal, webhook.id)
        held.release.set()
        await settle(tenant.dispatcher)
        assert await tenant.webhooks.of_workspace(tenant.principal) == []


async def test_a_test_event_goes_to_one_webhook_and_is_marked(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority) as tested, receiver(authority) as other:
        webhook = await tenant.register(tested.url, events=("stt.completed",))
        await tenant.register(other.url)
        listed = await tenant.webhooks.test(tenant.principal, webhook.id)
        await tenant.deliver()
        body = json.loads(tested.received[0].body)
        assert tested.received[0].id == listed.delivery.event_id and other.received == []
    assert body["event"] == "stt.completed" and body["data"]["test"] is True


async def test_hanging_receivers_of_one_workspace_do_not_delay_another_workspace(
    patient: Tenant, authority: Authority
) -> None:
    held = Held()
    other = await patient.other_tenant()
    async with receiver(authority, held) as dead, receiver(authority) as live:
        for number in range(8):
            await patient.register(f"{dead.url}?{number}", events=("tts.failed",))
        for _ in range(AT_ONCE_FOR_ONE):
            await patient.emit("tts.failed")
        await other.register(live.url)
        patient.clock.advance(seconds=60)
        await other.emit()
        async with patient.delivering(held):
            await dead.until(AT_ONCE_FOR_WORKSPACE)
            await live.until(1)
            assert len(dead.received) == AT_ONCE_FOR_WORKSPACE


async def test_an_attempt_with_an_unexpected_error_is_retried_by_the_schedule(
    tenant: Tenant, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_(*_: object) -> AttemptResult:
        raise RuntimeError("nobody foresaw this")

    async with receiver(authority) as hook:
        webhook = await tenant.register(hook.url)
        await tenant.emit()
        with monkeypatch.context() as patch:
            patch.setattr(tenant.sender, "post", break_)
            await tenant.deliver()
        found = await tenant.only(webhook.id)
        assert [(one.status_code, one.error) for one in found.attempts] == [(None, "internal")]
        assert (found.delivery.status, found.delivery.lease) == ("pending", None)
        tenant.clock.advance(seconds=7)
        await tenant.deliver()
        assert len(hook.received) == 1


async def test_event_bodies_are_encrypted_until_they_are_sent(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        webhook = await tenant.register(hook.url)
        await tenant.emit(text="a secret sentence")
        (body,) = await rows(tenant.database, select(Event.body))
        assert body is not None and "secret sentence" not in body
        data_keys = [b64encode(bytes(32)).decode()]
        stranger = WebhookDispatcher(
            tenant.database, Encryption(data_keys), tenant.sender, now=tenant.clock
        )
        await stranger.start_due()
        await settle(stranger)
        assert [one.error for one in (await tenant.only(webhook.id)).attempts] == ["seal_broken"]
        assert hook.received == []
        tenant.clock.advance(seconds=7)
        await tenant.deliver()
        assert b"a secret sentence" in hook.received[0].body


async def test_a_new_url_restarts_the_five_days_before_deactivation(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await tenant.register(hook.url)
        await tenant.emit()
        await tenant.deliver()
        tenant.clock.advance(days=6)
        change = WebhookChange(url=f"{hook.url}?moved")
        await tenant.webhooks.change(tenant.principal, webhook.id, change)
        await tenant.emit()
        await tenant.deliver()
        assert await tenant.status(webhook.id) == "active"
