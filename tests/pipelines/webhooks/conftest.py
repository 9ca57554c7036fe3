"""A workspace with webhooks, a certificate authority, and a dispatcher with a manual clock."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from configs.settings import Settings
from db import deliveries
from db.database import Database, utc_now
from db.deliveries import ListedDelivery
from db.webhooks import EVENT_KINDS, EventKind, NewEvent, Webhook, add_event
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.storage.encryption import Encryption
from pipelines.webhooks import sender as sender_module
from pipelines.webhooks.dispatcher import WebhookDispatcher
from pipelines.webhooks.registration import Webhooks
from pipelines.webhooks.sender import Sender
from tests.api.local_server import local_settings
from tests.db.test_chats import add_workspace
from tests.patience import PATIENCE_S
from tests.pipelines.webhooks.receivers import Authority, Held

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()


@dataclass
class Clock:
    """A manual clock for the dispatcher: it stands still between `advance` and `catch_up`."""

    moment: datetime = field(default_factory=utc_now)

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, **time: float) -> None:
        self.moment += timedelta(**time)

    def catch_up(self) -> None:
        """Advances to the real time, so that rows written until now are due."""
        self.moment = max(self.moment, utc_now())


@dataclass
class Tenant:
    """A workspace with webhooks, and the dispatcher of their deliveries."""

    database: Database
    encryption: Encryption
    settings: Settings
    webhooks: Webhooks
    principal: Principal
    clock: Clock
    dispatcher: WebhookDispatcher
    sender: Sender

    async def register(
        self, url: str, events: tuple[EventKind, ...] = EVENT_KINDS, secret: str | None = SECRET
    ) -> Webhook:
        return await self.webhooks.register(self.principal, url, events, secret)

    async def emit(self, kind: EventKind = "voice.ready", **data: Any) -> str | None:
        event = NewEvent(kind, {"id": "v", **data})
        event_id = await self.database.run(
            add_event, self.principal.workspace_id, event, self.encryption.encrypt_text
        )
        self.clock.catch_up()
        return event_id

    async def deliver(self) -> int:
        """Attempts all deliveries that are due by the clock; returns how many."""
        self.clock.catch_up()
        count = 0
        while started := await self.dispatcher.start_due():
            count += started
            await settle(self.dispatcher)
        return count

    @asynccontextmanager
    async def delivering(self, held: Held) -> AsyncIterator[None]:
        """Runs the dispatcher; at the end, releases the held responses so that attempts end."""
        running = asyncio.create_task(self.dispatcher.run())
        yield
        running.cancel()
        held.release.set()
        await settle(self.dispatcher)

    async def listed(self, webhook_id: UUID) -> list[ListedDelivery]:
        found, _ = await self.database.read(deliveries.deliveries_of, webhook_id, 1, 100, None)
        return found

    async def only(self, webhook_id: UUID) -> ListedDelivery:
        (found,) = await self.listed(webhook_id)
        return found

    async def status(self, webhook_id: UUID) -> str:
        return (await self.webhooks.get(self.principal, webhook_id)).status

    async def other_tenant(self, email: str = "neighbour@b.co") -> "Tenant":
        """Another workspace with the same dispatcher."""
        other = await add_workspace(self.database, email)
        return replace(self, principal=replace(self.principal, workspace_id=other))

    def another_dispatcher(
        self, time_scale: float = 1.0, sender: Sender | None = None
    ) -> WebhookDispatcher:
        sender = sender or self.sender
        return WebhookDispatcher(
            self.database, self.encryption, sender, time_scale=time_scale, now=self.clock
        )


async def settle(dispatcher: WebhookDispatcher) -> None:
    """Waits until no attempt of the dispatcher runs."""
    while dispatcher._running:
        await asyncio.wait(dispatcher._running)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def tenant(database: Database, authority: Authority, tmp_path: Path) -> AsyncIterator[Tenant]:
    settings = replace(local_settings(tmp_path), webhooks=authority.settings())
    encryption = Encryption(settings.secrets.data_keys)
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    clock = Clock()
    async with aclosing(Sender(settings.webhooks)) as sender:
        yield Tenant(
            database=database,
            encryption=encryption,
            settings=settings,
            webhooks=Webhooks(database, encryption, settings),
            principal=principal,
            clock=clock,
            dispatcher=WebhookDispatcher(database, encryption, sender, now=clock),
            sender=sender,
        )


@pytest.fixture
async def patient(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tenant]:
    """The same with attempts that time out later than this test, also while they connect."""
    monkeypatch.setattr(sender_module, "CONNECT_S", 10 * PATIENCE_S)
    async with aclosing(Sender(tenant.settings.webhooks, total_s=10 * PATIENCE_S)) as sender:
        yield replace(tenant, sender=sender, dispatcher=tenant.another_dispatcher(sender=sender))
