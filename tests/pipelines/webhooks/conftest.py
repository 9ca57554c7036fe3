"""A migrated database, an authority, and a courier whose clock a test turns."""

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
from pipelines.webhooks.dispatcher import WebhookDispatcher
from pipelines.webhooks.registration import Webhooks
from pipelines.webhooks.sender import Sender
from tests.api.local_server import local_settings
from tests.db.test_chats import add_workspace
from tests.pipelines.webhooks.receivers import Authority, Held

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()


@dataclass
class Clock:
    """The dispatcher's own time: it stands still, but is never behind what was written last."""

    moment: datetime = field(default_factory=utc_now)

    def __call__(self) -> datetime:
        return self.moment

    def pass_(self, **time: float) -> None:
        self.moment += timedelta(**time)

    def catch_up(self) -> None:
        """What was written until now, with the real time, is due by this clock."""
        self.moment = max(self.moment, utc_now())


@dataclass
class Workshop:
    """All that a test of deliveries needs."""

    database: Database
    encryption: Encryption
    settings: Settings
    webhooks: Webhooks
    principal: Principal
    clock: Clock
    courier: WebhookDispatcher
    sender: Sender

    async def register(
        self, url: str, events: tuple[EventKind, ...] = EVENT_KINDS, secret: str | None = SECRET
    ) -> Webhook:
        return await self.webhooks.register(self.principal, url, events, secret)

    async def happen(self, kind: EventKind = "voice.ready", **data: Any) -> str | None:
        event = NewEvent(kind, {"id": "v", **data})
        event_id = await self.database.run(
            add_event, self.principal.workspace_id, event, self.encryption.encrypt_text
        )
        self.clock.catch_up()
        return event_id

    async def deliver(self) -> int:
        """Attempts what is due by the clock, to its end."""
        self.clock.catch_up()
        count = 0
        while started := await self.courier.start_due():
            count += started
            await settle(self.courier)
        return count

    @asynccontextmanager
    async def delivering(self, held: Held) -> AsyncIterator[None]:
        """While the courier runs; then what is held is let go, and every attempt ends."""
        running = asyncio.create_task(self.courier.run())
        yield
        running.cancel()
        held.let_go.set()
        await settle(self.courier)

    async def listed(self, webhook_id: UUID) -> list[ListedDelivery]:
        found, _ = await self.database.read(deliveries.deliveries_of, webhook_id, 1, 100, None)
        return found

    async def only(self, webhook_id: UUID) -> ListedDelivery:
        (found,) = await self.listed(webhook_id)
        return found

    async def status(self, webhook_id: UUID) -> str:
        return (await self.webhooks.get(self.principal, webhook_id)).status

    async def neighbour(self) -> "Workshop":
        """Another workspace with the same courier."""
        other = await add_workspace(self.database, "neighbour@b.co")
        return replace(self, principal=replace(self.principal, workspace_id=other))

    def another_courier(self, time_scale: float = 1.0) -> WebhookDispatcher:
        return WebhookDispatcher(
            self.database, self.encryption, self.sender, time_scale=time_scale, now=self.clock
        )


async def settle(courier: WebhookDispatcher) -> None:
    """Waits until no attempt of the courier runs."""
    while courier._running:
        await asyncio.wait(courier._running)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def workshop(
    database: Database,
    authority: Authority,
    tmp_path: Path,
) -> AsyncIterator[Workshop]:
    settings = replace(local_settings(tmp_path), webhooks=authority.settings())
    encryption = Encryption(settings.secrets.data_keys)
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    clock = Clock()
    async with aclosing(Sender(settings.webhooks)) as sender:
        yield Workshop(
            database=database,
            encryption=encryption,
            settings=settings,
            webhooks=Webhooks(database, encryption, settings),
            principal=principal,
            clock=clock,
            courier=WebhookDispatcher(database, encryption, sender, now=clock),
            sender=sender,
        )
