"""Deliveries from the outbox to real TLS receivers, on both databases, with a turned clock."""

import asyncio
import json
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web
from openai import OpenAI
from sqlmodel import Session, select
from standardwebhooks.webhooks import Webhook as StandardVerifier
from svix.webhooks import Webhook as SvixVerifier

from db import deliveries
from db.deliveries import AttemptResult
from db.webhooks import Event
from pipelines.errors import InvalidRequest
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.dispatcher import AT_ONCE_FOR_ONE, AT_ONCE_FOR_WORKSPACE, WebhookDispatcher
from pipelines.webhooks.registration import WebhookChange
from tests.pipelines.webhooks.conftest import SECRET, Workshop, settle
from tests.pipelines.webhooks.receivers import Authority, Held, receiver

DAYS_OF_SCHEDULE = 4


def verifiers(secret: str) -> list[Any]:
    """Three that others wrote; each raises when a signature is wrong."""
    key: str | bytes = secret if secret.startswith("whsec_") else secret.encode()
    client = OpenAI(api_key="none", webhook_secret=secret)
    return [
        StandardVerifier(key).verify,
        SvixVerifier(key).verify,
        lambda body, headers: client.webhooks.verify_signature(body, headers),
    ]


@pytest.mark.parametrize("secret", [SECRET, "eight 8 ünïcode"])
async def test_three_foreign_verifiers_accept_what_arrives_and_refuse_what_was_changed(
    workshop: Workshop, authority: Authority, secret: str
) -> None:
    async with receiver(authority) as hook:
        await workshop.register(hook.url, secret=secret)
        event_id = await workshop.happen(name="Zoë 😀")
        await workshop.deliver()
        (message,) = hook.received
    assert message.id == event_id
    assert message.headers["content-type"] == "application/json"
    assert message.headers["user-agent"].endswith("-webhooks/1")
    assert json.loads(message.body)["data"] == {"id": "v", "name": "Zoë 😀"}
    for verify in verifiers(secret):
        verify(message.body.decode(), message.headers)
        with pytest.raises(Exception, match=r"(?i)signature"):
            verify(message.body.decode() + " ", message.headers)


async def test_without_a_secret_there_is_no_signature(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        await workshop.register(hook.url, secret=None)
        event_id = await workshop.happen()
        await workshop.deliver()
        headers = hook.received[0].headers
    assert headers["webhook-id"] == event_id and headers["webhook-timestamp"].isdecimal()
    assert "webhook-signature" not in headers


async def test_while_a_secret_rotates_both_verify(workshop: Workshop, authority: Authority) -> None:
    newer = "another secret"
    async with receiver(authority) as hook:
        webhook = await workshop.register(hook.url)
        change = WebhookChange(secret=newer)
        await workshop.webhooks.change(workshop.principal, webhook.id, change)
        await workshop.happen()
        await workshop.deliver()
        for verify in verifiers(SECRET) + verifiers(newer):
            verify(hook.received[0].body.decode(), hook.received[0].headers)
        workshop.clock.pass_(hours=25)
        await workshop.happen()
        await workshop.deliver()
        assert len(hook.received[1].headers["webhook-signature"].split()) == 1


@pytest.mark.parametrize("status", [400, 404, 500, 503, 302, 199 + 1])
async def test_only_2xx_is_success(workshop: Workshop, authority: Authority, status: int) -> None:
    async with receiver(authority, status) as hook:
        webhook = await workshop.register(hook.url)
        await workshop.happen()
        await workshop.deliver()
        found = await workshop.only(webhook.id)
    assert found.delivery.status == ("delivered" if status == 200 else "pending")
    assert [(one.number, one.status_code, one.error) for one in found.attempts] == [
        (1, status, None)
    ]


async def test_the_whole_schedule_sends_ten_times_the_same_message_and_then_fails(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await workshop.register(hook.url)
        event_id = await workshop.happen()
        began = workshop.clock.moment
        waits = []
        while (found := await workshop.listed(webhook.id))[0].delivery.status == "pending":
            due = found[0].delivery.next_at
            waits.append((due - workshop.clock.moment).total_seconds())
            workshop.clock.moment = max(workshop.clock.moment, due)
            await workshop.deliver()
        assert {message.id for message in hook.received} == {event_id}
        assert len({message.body for message in hook.received}) == 1
        assert all(message.headers["webhook-signature"] for message in hook.received)
        moments = [message.headers["webhook-timestamp"] for message in hook.received]
        assert len(hook.received) == 10 and len(set(moments)) == 10
    planned = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]
    assert all(0.79 * p <= w <= 1.21 * p for p, w in zip(planned, waits[1:], strict=True)), waits
    assert workshop.clock.moment - began < timedelta(days=DAYS_OF_SCHEDULE)
    assert (await workshop.only(webhook.id)).delivery.status == "failed"
    assert await workshop.status(webhook.id) == "active"


async def test_retry_after_is_honoured_up_to_an_hour(
    workshop: Workshop, authority: Authority
) -> None:
    async def busy(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=503, headers={"Retry-After": request.query["wait"]})

    async with receiver(authority, busy) as hook:
        for asked, waited in (("600", 600), ("999999", 3600), ("soon", 5)):
            webhook = await workshop.register(f"{hook.url}?wait={asked}", events=("tts.failed",))
            await workshop.happen("tts.failed")
            await workshop.deliver()
            found = (await workshop.only(webhook.id)).delivery
            wait_s = (found.next_at - workshop.clock.moment).total_seconds()
            assert waited * 0.79 <= wait_s <= waited * 1.21, asked
            await workshop.webhooks.delete(workshop.principal, webhook.id)


async def test_gone_makes_the_webhook_inactive_at_once(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority, 410) as hook:
        webhook = await workshop.register(hook.url)
        for _ in range(6):  # more than are attempted at once
            await workshop.happen()
        await workshop.deliver()
        assert await workshop.status(webhook.id) == "inactive"
        assert len(hook.received) == AT_ONCE_FOR_ONE
        states = [one.delivery.status for one in await workshop.listed(webhook.id)]
        assert sorted(states) == ["cancelled"] * 2 + ["failed"] * 4
        assert await workshop.happen() is None
        assert not await workshop.webhooks.events.wants(
            workshop.principal.workspace_id, "voice.ready"
        )


async def test_five_days_without_a_success_make_it_inactive_and_a_patch_brings_it_back(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await workshop.register(hook.url)
        for _ in range(4):
            await workshop.happen()
            await workshop.deliver()
            assert await workshop.status(webhook.id) == "active"
            workshop.clock.pass_(days=1.26)
        await workshop.happen()
        await workshop.deliver()
        assert await workshop.status(webhook.id) == "inactive"
        failed = await workshop.listed(webhook.id)
        with pytest.raises(InvalidRequest, match="inactive"):
            await workshop.webhooks.redeliver(workshop.principal, webhook.id, failed[0].delivery.id)
        change = WebhookChange(status="active")
        await workshop.webhooks.change(workshop.principal, webhook.id, change)
        hook.answer = 200
        hook.received.clear()
        for one in failed:
            await workshop.webhooks.redeliver(workshop.principal, webhook.id, one.delivery.id)
        await workshop.deliver()
        assert len(hook.received) == 5
        states = {one.delivery.status for one in await workshop.listed(webhook.id)}
        assert states == {"delivered"} and await workshop.status(webhook.id) == "active"


async def test_one_success_starts_the_five_days_anew(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await workshop.register(hook.url)
        for answer in (500, 500, 200, 500, 500):
            hook.answer = answer
            await workshop.happen()
            await workshop.deliver()
            workshop.clock.pass_(days=2.4)
        assert await workshop.status(webhook.id) == "active"


async def test_a_dead_receiver_does_not_delay_a_live_one(
    workshop: Workshop, authority: Authority
) -> None:
    held = Held()
    async with receiver(authority, held) as dead, receiver(authority) as live:
        await workshop.register(dead.url, events=("tts.failed",))
        for _ in range(deliveries.SEEN_AT_ONCE + 50):
            await workshop.happen("tts.failed")
        await workshop.register(live.url, events=("tts.completed",))
        workshop.clock.pass_(seconds=60)
        async with workshop.delivering(held):
            await dead.until(AT_ONCE_FOR_ONE)
            for _ in range(20):
                await workshop.happen("tts.completed")
            await live.until(20, seconds=5)
            assert len(dead.received) == AT_ONCE_FOR_ONE


async def test_a_courier_that_died_loses_nothing_and_repeats_the_id(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        webhook = await workshop.register(hook.url)
        event_id = await workshop.happen()
        ids = [(await workshop.only(webhook.id)).delivery.id]
        lease = timedelta(seconds=60)
        # Claimed, sent, and dead before the outcome was noted.
        claimed = await workshop.database.run(
            deliveries.claim, ids, "of the dead", workshop.clock(), lease
        )
        assert [one.event.id for one in claimed] == [event_id]
        assert await workshop.deliver() == 0
        workshop.clock.pass_(seconds=61)
        assert await workshop.deliver() == 1
        assert [message.id for message in hook.received] == [event_id]
        # And when the dead one was only slow, its outcome changes nothing any more.
        attempt = AttemptResult(500, None, 1)
        late = await workshop.database.run(
            deliveries.finish, claimed[0], attempt, workshop.clock(), None, timedelta(days=5)
        )
        assert not late
        assert (await workshop.only(webhook.id)).delivery.status == "delivered"


async def test_several_couriers_send_each_message_once(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority) as hook:
        await workshop.register(hook.url)
        sent = [await workshop.happen() for _ in range(30)]
        couriers = [workshop.courier, *(workshop.another_courier() for _ in range(3))]
        while any(await asyncio.gather(*(one.start_due() for one in couriers))):
            await asyncio.gather(*(settle(one) for one in couriers))
        assert sorted(message.id for message in hook.received) == sorted(map(str, sent))


async def test_a_deleted_webhook_hears_nothing_more(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await workshop.register(hook.url)
        await workshop.happen()
        await workshop.deliver()
        await workshop.webhooks.delete(workshop.principal, webhook.id)
        workshop.clock.pass_(days=10)
        assert await workshop.deliver() == 0 and len(hook.received) == 1


async def test_deleting_during_an_attempt_breaks_nothing(
    workshop: Workshop, authority: Authority
) -> None:
    held = Held()
    async with receiver(authority, held) as hook:
        webhook = await workshop.register(hook.url)
        await workshop.happen()
        assert await workshop.courier.start_due() == 1
        await hook.until(1)
        await workshop.webhooks.delete(workshop.principal, webhook.id)
        held.let_go.set()
        await settle(workshop.courier)
        assert await workshop.webhooks.of_workspace(workshop.principal) == []


async def test_a_test_event_goes_to_one_webhook_and_says_that_it_is_a_test(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority) as tested, receiver(authority) as other:
        webhook = await workshop.register(tested.url, events=("stt.completed",))
        await workshop.register(other.url)
        listed = await workshop.webhooks.test(workshop.principal, webhook.id)
        await workshop.deliver()
        body = json.loads(tested.received[0].body)
        assert tested.received[0].id == listed.delivery.event_id and other.received == []
    assert body["event"] == "stt.completed" and body["data"]["test"] is True


async def test_unsubscribed_events_are_not_sent(workshop: Workshop, authority: Authority) -> None:
    async with receiver(authority) as hook:
        await workshop.register(hook.url, events=("tts.failed",))
        assert await workshop.happen("tts.completed") is None
        assert await workshop.deliver() == 0 and hook.received == []


async def test_many_dead_receivers_of_one_workspace_do_not_delay_another(
    workshop: Workshop, authority: Authority
) -> None:
    held = Held()
    other = await workshop.neighbour()
    async with receiver(authority, held) as dead, receiver(authority) as live:
        for number in range(8):
            await workshop.register(f"{dead.url}?{number}", events=("tts.failed",))
        for _ in range(AT_ONCE_FOR_ONE):
            await workshop.happen("tts.failed")
        await other.register(live.url)
        workshop.clock.pass_(seconds=60)
        await other.happen()
        async with workshop.delivering(held):
            await dead.until(AT_ONCE_FOR_WORKSPACE)
            await live.until(1, seconds=5)
            assert len(dead.received) == AT_ONCE_FOR_WORKSPACE


async def test_an_attempt_that_breaks_is_made_again_by_the_schedule(
    workshop: Workshop, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def break_(*_: object) -> AttemptResult:
        raise RuntimeError("nobody foresaw this")

    async with receiver(authority) as hook:
        webhook = await workshop.register(hook.url)
        await workshop.happen()
        with monkeypatch.context() as patch:
            patch.setattr(workshop.sender, "post", break_)
            await workshop.deliver()
        found = await workshop.only(webhook.id)
        assert [(one.status_code, one.error) for one in found.attempts] == [(None, "internal")]
        assert (found.delivery.status, found.delivery.lease) == ("pending", None)
        workshop.clock.pass_(seconds=7)
        await workshop.deliver()
        assert len(hook.received) == 1


async def test_what_an_event_says_is_sealed_until_it_is_sent(
    workshop: Workshop, authority: Authority
) -> None:
    def bodies(session: Session) -> list[str | None]:
        return list(session.exec(select(Event.body)))

    async with receiver(authority) as hook:
        webhook = await workshop.register(hook.url)
        await workshop.happen(text="a secret sentence")
        (body,) = await workshop.database.read(bodies)
        assert body is not None and "secret sentence" not in body
        data_keys = [b64encode(bytes(32)).decode()]
        stranger = WebhookDispatcher(
            workshop.database, Encryption(data_keys), workshop.sender, now=workshop.clock
        )
        await stranger.start_due()
        await settle(stranger)
        assert [one.error for one in (await workshop.only(webhook.id)).attempts] == ["seal_broken"]
        assert hook.received == []
        workshop.clock.pass_(seconds=7)
        await workshop.deliver()
        assert b"a secret sentence" in hook.received[0].body


async def test_a_change_of_the_secret_that_is_sent_again_keeps_the_old_one(
    workshop: Workshop, authority: Authority
) -> None:
    newer = "another secret"
    async with receiver(authority) as hook:
        webhook = await workshop.register(hook.url)
        for _ in range(2):
            change = WebhookChange(secret=newer)
            await workshop.webhooks.change(workshop.principal, webhook.id, change)
        await workshop.happen()
        await workshop.deliver()
        for verify in verifiers(SECRET) + verifiers(newer):
            verify(hook.received[0].body.decode(), hook.received[0].headers)


async def test_a_new_address_starts_the_five_days_anew(
    workshop: Workshop, authority: Authority
) -> None:
    async with receiver(authority, 500) as hook:
        webhook = await workshop.register(hook.url)
        await workshop.happen()
        await workshop.deliver()
        workshop.clock.pass_(days=6)
        change = WebhookChange(url=f"{hook.url}?moved")
        await workshop.webhooks.change(workshop.principal, webhook.id, change)
        await workshop.happen()
        await workshop.deliver()
        assert await workshop.status(webhook.id) == "active"
