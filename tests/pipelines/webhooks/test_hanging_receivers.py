"""Hanging receivers of many workspaces do not delay the deliveries of another one."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from sqlmodel import Session

from db.deliveries import AttemptResult, backlog
from db.webhooks import NewEvent, write_event
from pipelines.webhooks.dispatcher import (
    AT_ONCE,
    AT_ONCE_FOR_ONE,
    AT_ONCE_FOR_WORKSPACE,
    AT_ONCE_SLOW,
    SLOW_FOR,
    SLOW_S,
)
from pipelines.webhooks.sender import Sender
from tests.pipelines.webhooks.conftest import Tenant, settle
from tests.pipelines.webhooks.receivers import Authority, Held, receiver

ENOUGH = AT_ONCE // AT_ONCE_FOR_WORKSPACE  # workspaces that could have held all places
HOOKS = AT_ONCE_FOR_WORKSPACE // AT_ONCE_FOR_ONE + 1
PROMPT = "https://example.com/prompt"  # of the workspace that should not wait


@dataclass
class HangingSender(Sender):
    """In place of the network: an attempt ends at once, or hangs until `release` is set."""

    hangs: bool = False
    release: asyncio.Event = field(default_factory=asyncio.Event)
    result: AttemptResult = AttemptResult(None, "timeout", 15_000)
    urls: list[str] = field(default_factory=list)  # of all attempts

    async def post(
        self, url: str, headers: dict[str, str], body: bytes, method: str = "POST"
    ) -> AttemptResult:
        self.urls.append(url)
        if self.hangs:
            await self.release.wait()
        return replace(self.result, milliseconds=50) if url == PROMPT else self.result


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


def write_backlog(session: Session, tenant: Tenant, webhook_id: UUID, count: int) -> None:
    workspace_id, encrypt = tenant.principal.workspace_id, tenant.encryption.encrypt_text
    for _ in range(count):
        write_event(session, workspace_id, NewEvent("voice.ready", {}), [webhook_id], encrypt)


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
        await dead.until(held_by(patient).total())
        await patient.register(live.url)
        sent = {await patient.emit() for _ in range(20)}
        async with patient.delivering(held):
            assert {one.id for one in await live.until(len(sent))} == sent


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
    await crowd.register(PROMPT)
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


@pytest.mark.slow
async def test_a_backlog_of_hundreds_of_workspaces_does_not_delay_another_one(
    tenant: Tenant,
) -> None:
    slow, backlog_of_each = AT_ONCE + 44, 12
    almost_slow = AttemptResult(200, None, round(1000 * SLOW_S) - 100)
    sender = HangingSender(hangs=True, result=almost_slow)
    crowd = replace(tenant, dispatcher=tenant.another_dispatcher(sender=sender))
    for number in range(slow):
        other = await crowd.other_tenant(f"slow-{number}@b.co")
        hook = await other.register("https://example.com/slow")
        await crowd.database.run(write_backlog, other, hook.id, backlog_of_each)
    await start_all(crowd)
    assert held_by(crowd).total() == AT_ONCE
    await crowd.register(PROMPT)
    sender.release.set()
    await settle(crowd.dispatcher)
    for _ in range(3):
        await crowd.emit()
        sender.urls.clear()
        await crowd.dispatcher.start_due()  # AT_ONCE attempts at most
        await settle(crowd.dispatcher)
        assert PROMPT in sender.urls
    assert (await crowd.database.read(backlog, crowd.clock()))[0] > 2 * slow


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
async def test_the_time_of_answers_decides_which_receivers_are_slow(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, status: int, seconds: float, is_slow: bool
) -> None:
    async def post(*_: object) -> AttemptResult:
        return AttemptResult(status, None, round(1000 * seconds))

    monkeypatch.setattr(tenant.sender, "post", post)
    await tenant.register("https://example.com/hook")
    await tenant.emit()
    await tenant.deliver()
    assert (tenant.principal.workspace_id in tenant.dispatcher._slow) is is_slow
