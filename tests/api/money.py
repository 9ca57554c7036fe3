"""The charges and the webhook events of a workspace, read from the database."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlmodel import Session, col, select

from api.services import Services
from db.billing.ledger import change_credit, credit_of, discrepancies
from db.billing.tables import CreditHold, LedgerEntry
from db.webhooks import Event, Webhook, body_about
from pipelines.accounts.authentication import Principal
from pipelines.storage.encryption import Encryption


@dataclass(frozen=True)
class Books:
    """The ledger and the outbox of one workspace."""

    services: Services
    workspace_id: int
    key_id: int | None = None  # of the API key that pays; None for a token

    async def kinds(self) -> list[str]:
        """Of the ledger entries without grants and adjustments, after all settlements."""
        return [entry.kind for entry in await self.entries()]

    async def entries(self) -> list[LedgerEntry]:
        await self.services.platform.billing.wait_for_settlements()
        return await self.services.infrastructure.database.read(_entries, self.workspace_id)

    async def charged(self, service: str) -> tuple[int, int]:
        """Units and micro-USD; checks that no hold is open and that the ledger is consistent."""
        entries = [one for one in await self.entries() if one.kind == "capture"]
        assert await self.services.infrastructure.database.read(_open_holds) == 0
        assert await self.services.infrastructure.database.read(discrepancies) == []
        assert {one.service for one in entries} <= {service}
        assert {one.key_id for one in entries} <= {self.key_id or 0}
        return sum(one.units for one in entries), -sum(one.amount for one in entries)

    async def set_credit(self, micro_usd: int) -> None:
        await self.services.infrastructure.database.run(_set_credit, self.workspace_id, micro_usd)

    async def add_webhook(self, *kinds: str) -> None:
        """Subscribes to these events, without a dispatcher."""
        await self.services.infrastructure.database.run(
            _add_webhook, self.workspace_id, list(kinds)
        )

    async def events(self) -> list[dict[str, Any]]:
        await self.services.platform.billing.wait_for_settlements()
        encryption = Encryption(self.services.infrastructure.settings.secrets.data_keys)
        return [
            json.loads(
                encryption.decrypt_text(event.body, body_about(event.workspace_id, event.id))
            )
            for event in await self.services.infrastructure.database.read(
                _events, self.workspace_id
            )
            if event.body is not None
        ]


async def principal_of(services: Services, auth: dict[str, str]) -> Principal:
    """Of the key in the headers."""
    credential = auth["Authorization"].removeprefix("Bearer ")
    return await services.platform.accounts.authenticator.authenticate(credential)


async def books_of(services: Services, auth: dict[str, str]) -> Books:
    """Of the workspace that the key in the headers belongs to."""
    principal = await principal_of(services, auth)
    return Books(services, principal.workspace_id, principal.key_id)


def _entries(session: Session, workspace_id: int) -> list[LedgerEntry]:
    query = select(LedgerEntry).where(
        LedgerEntry.workspace_id == workspace_id,
        col(LedgerEntry.kind).not_in(("grant", "adjust")),
    )
    return list(session.exec(query.order_by(col(LedgerEntry.id))))


def _open_holds(session: Session) -> int:
    return len(session.exec(select(CreditHold)).all())


def _set_credit(session: Session, workspace_id: int, micro_usd: int) -> None:
    change = micro_usd - credit_of(session, workspace_id)
    assert change_credit(session, workspace_id, uuid4().hex, change, "the test") == "done"


def _add_webhook(session: Session, workspace_id: int, kinds: list[str]) -> None:
    url = "https://hooks.example.com/"
    session.add(Webhook(id=uuid4(), workspace_id=workspace_id, url=url, events=kinds))


def _events(session: Session, workspace_id: int) -> list[Event]:
    query = select(Event).where(Event.workspace_id == workspace_id).order_by(col(Event.id))
    return list(session.exec(query))
