"""Hanging receivers of many workspaces do not delay the deliveries of another one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import pytest

from db import deliveries
from db.deliveries import AttemptResult, backlog
from pipelines.webhooks import dispatcher
from pipelines.webhooks.dispatcher import (
    AT_ONCE,
    AT_ONCE_FOR_ONE,
    AT_ONCE_FOR_WORKSPACE,
    AT_ONCE_SLOW,
    SLOW_FOR,
    SLOW_S,
)
from pipelines.webhooks.sender import Sender
from tests.patience import PATIENCE_S
from tests.pipelines.webhooks.conftest import Tenant, settle
from tests.pipelines.webhooks.receivers import Authority, Held, receiver

ENOUGH = AT_ONCE // AT_ONCE_FOR_WORKSPACE  # workspaces that could have held all places
HOOKS = AT_ONCE_FOR_WORKSPACE // AT_ONCE_FOR_ONE + 1


@dataclass
class HangingSender(Sender):
    """In place of the network: an attempt times out at once, or hangs until `release` is set."""

    hangs: bool = False
    result: AttemptResult = AttemptResult(None, "timeout", 15_000)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> AttemptResult:
        if self.hangs:
            await self.release.wait()
        return self.result


@pytest.fixture
async def patient(tenant: Tenant) -> AsyncIterator[Tenant]:
    """The same with attempts that time out later than this test."""
    async with aclosing(Sender(tenant.settings.webhooks, total_s=10 * PATIENCE_S)) as sender:
        yield replace(tenant, sender=sender, dispatcher=tenant.another_dispatcher(sender=sender))


async def tenants_with_deliveries(
    tenant: Tenant, count: int, url: str, events: int = AT_ONCE_FOR_ONE
) -> list[Tenant]:
    """Other workspaces with many webhooks, each with `events` deliveries that are due."""
    made = []
    for number in range(count):
        other = await tenant.other_tenant(f"hanging-{number}@b.co")
        for hook in range(HOOKS):
            await other.register(f"{url}?{number}.{hook}")
        for _ in range(events):
            await other.emit()
        made.append(other)
    return made


def held_by(tenant: Tenant) -> Counter[int]:
    return Counter(one.webhook.workspace_id for one in tenant.dispatcher._running.values())


async def start_all(tenant: Tenant) -> None:
    tenant.clock.catch_up()
    while await tenant.dispatcher.start_due():
        pass


async def test_hanging_receivers_of_sixteen_workspaces_leave_places_for_another_one(
    patient: Tenant, authority: Authority
) -> None:
    held = Held()
    async with receiver(authority, held) as dead, receiver(authority) as live:
        await tenants_with_deliveries(patient, ENOUGH, dead.url)
        await start_all(patient)
        assert len(held_by(patient)) == ENOUGH and held_by(patient).total() < AT_ONCE
        await dead.until(held_by(patient).total(), PATIENCE_S)
        await patient.register(live.url)
        sent = {await patient.emit() for _ in range(20)}
        async with patient.delivering(held):
            assert {one.id for one in await live.until(len(sent), PATIENCE_S)} == sent


async def test_workspaces_with_slow_receivers_share_few_places_for_ten_minutes(
    tenant: Tenant,
) -> None:
    sender = HangingSender()
    crowd = replace(tenant, dispatcher=tenant.another_dispatcher(sender=sender))
    slow = await tenants_with_deliveries(crowd, 24, "https://example.com/hook", events=2)
    await crowd.deliver()
    sender.hangs = True
    for one in slow:  # a new webhook does not make a workspace prompt again
        await one.register("https://example.com/new")
        await one.emit()
    crowd.clock.advance(seconds=7)  # to the second attempts
    await start_all(crowd)
    held = held_by(crowd)
    assert AT_ONCE_SLOW // 2 < held.total() <= AT_ONCE_SLOW
    await crowd.register("https://example.com/prompt")
    for _ in range(AT_ONCE_FOR_ONE):
        await crowd.emit()
    await start_all(crowd)
    assert held_by(crowd) == held + Counter({crowd.principal.workspace_id: AT_ONCE_FOR_ONE})

    sender.release.set()
    await settle(crowd.dispatcher)
    sender.release.clear()
    crowd.clock.advance(seconds=SLOW_FOR.total_seconds())
    await start_all(crowd)
    assert held_by(crowd).total() > 2 * AT_ONCE_SLOW
    sender.release.set()
    await settle(crowd.dispatcher)


async def test_backlogs_of_many_workspaces_delay_what_another_one_sends_by_one_attempt(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their receivers answer just in time not to count as slow."""
    monkeypatch.setattr(dispatcher, "AT_ONCE", 8)
    monkeypatch.setattr(deliveries, "SEEN_AT_ONCE", 20)
    sender = HangingSender(hangs=True, result=AttemptResult(200, None, 3900))
    crowd = replace(tenant, dispatcher=tenant.another_dispatcher(sender=sender))
    await tenants_with_deliveries(crowd, 12, "https://example.com/hook", events=3)
    await start_all(crowd)
    for _ in range(3):
        sender.release.set()
        await settle(crowd.dispatcher)
        sender.release.clear()
        await start_all(crowd)
    assert held_by(crowd).total() == 8
    await crowd.register("https://example.com/honest")
    await crowd.emit()
    crowd.clock.advance(seconds=1)
    first = next(iter(crowd.dispatcher._running))
    sender.release.set()
    await asyncio.wait([first])
    sender.release.clear()
    await start_all(crowd)
    assert crowd.principal.workspace_id in held_by(crowd)
    sender.release.set()
    await settle(crowd.dispatcher)


async def test_the_age_of_the_backlog_leaves_out_webhooks_that_are_failing(
    tenant: Tenant, authority: Authority
) -> None:
    async with receiver(authority, 500) as failing:
        await tenant.register(failing.url, events=("tts.failed",))
        await tenant.emit("tts.failed")
        await tenant.deliver()
        await tenant.emit("tts.failed")
        tenant.clock.advance(hours=1)
        assert await tenant.database.read(backlog, tenant.clock()) == (2, None)
        prompt = await tenant.register("https://example.com/hook", events=("tts.completed",))
        await tenant.emit("tts.completed")
        count, oldest = await tenant.database.read(backlog, tenant.clock())
        assert count == 3 and oldest is not None
        assert oldest == (await tenant.only(prompt.id)).delivery.next_at


@pytest.mark.parametrize(
    ("status", "seconds", "is_slow"), [(500, SLOW_S / 2, False), (200, SLOW_S, True)]
)
async def test_a_receiver_is_slow_by_the_time_of_its_answer_and_not_by_its_status(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, status: int, seconds: float, is_slow: bool
) -> None:
    async def post(*_: object) -> AttemptResult:
        return AttemptResult(status, None, round(1000 * seconds))

    monkeypatch.setattr(tenant.sender, "post", post)
    await tenant.register("https://example.com/hook")
    await tenant.emit()
    await tenant.deliver()
    assert (tenant.principal.workspace_id in tenant.dispatcher._slow) is is_slow
