"""Webhooks of a workspace: registration, changes, and the state of their deliveries."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

from pydantic import TypeAdapter
from sqlmodel import Session
from yarl import URL

from antiphon.webhooks import signing_key
from configs.load import load_yaml
from configs.settings import Settings
from db import deliveries
from db.accounts import lock_workspace
from db.audit import audit
from db.database import Database, utc_now
from db.deliveries import ListedDelivery
from db.webhooks import (
    EVENT_KINDS,
    EventKind,
    NewEvent,
    Webhook,
    secret_about,
    webhook_of,
    webhooks_of,
    write_event,
)
from pipelines.accounts.authentication import Principal
from pipelines.errors import InvalidRequest, NotFound
from pipelines.storage.encryption import DecryptionError, Encryption
from pipelines.webhooks.callbacks import CALLBACK_REQUEST, CallbackRequest
from pipelines.webhooks.events import WebhookEvents
from pipelines.webhooks.sender import FetchFailed, Sender
from pipelines.webhooks.targets import check_url

WebhookStatus = Literal["active", "inactive"]

_SAMPLES = load_yaml(TypeAdapter(dict[EventKind, dict[str, Any]]), "webhook_samples")
MAX_WEBHOOKS = 20
MOST_ATTEMPTS = 100  # attempts at a message: lists show every one
FETCH_S = 60.0  # time to fetch a file that a request waits for
OLD_SECRET_LASTS = timedelta(hours=24)  # the old and the new secret both sign meanwhile


@dataclass(frozen=True, slots=True)
class WebhookChange:
    """The new values; a field that is None is unchanged."""

    url: str | None = None
    events: Sequence[EventKind] | None = None
    secret: str | None = None
    status: WebhookStatus | None = None


class Webhooks:
    """Registers, lists and changes webhooks. Every method raises DatabaseUnavailable."""

    def __init__(self, database: Database, encryption: Encryption, settings: Settings) -> None:
        self._database = database
        self._encryption = encryption
        self.events = WebhookEvents(database, encryption.encrypt_text)
        self._settings = settings.webhooks
        self._allowed = settings.webhooks.allowed_networks
        own = URL(settings.public_url).raw_host
        self._own_hosts = frozenset({own.lower().removesuffix(".")} if own else ())

    def check(self, url: str) -> None:
        """Raise InvalidUrl for an address to which the service does not connect."""
        check_url(url, self._own_hosts, self._allowed)

    async def fetch(
        self, url: str, path: Path, most_bytes: int, take: Callable[[int], Awaitable[None]]
    ) -> None:
        """Write the content at an address to a file, and call `take` with the size of each piece.
        Raises InvalidUrl, FileTooLarge, or the errors of `take`."""
        self.check(url)
        try:
            async with asyncio.timeout(FETCH_S), aclosing(Sender(self._settings)) as sender:
                with path.open("wb") as file:
                    async for piece in sender.fetch(url, most_bytes):
                        await take(len(piece))
                        await asyncio.to_thread(file.write, piece)
        except TimeoutError:
            raise FetchFailed(f"url: cannot be fetched in {FETCH_S:g} seconds") from None

    async def register(
        self, principal: Principal, url: str, events: Sequence[EventKind], secret: str | None = None
    ) -> Webhook:
        """Register a webhook. Raises InvalidUrl, or InvalidRequest (secret, or MAX_WEBHOOKS)."""
        self.check(url)
        webhook = Webhook(
            id=uuid4(), workspace_id=principal.workspace_id, url=url, events=_in_order(events)
        )
        if secret is not None:
            webhook.secret = self._encrypted(webhook.id, secret)
        await self._database.run(_register, webhook, principal.actor)
        self.events.forget(principal.workspace_id)
        return webhook

    def callback(self, principal: Principal, url: str, request: CallbackRequest) -> Webhook:
        """Makes the callback of a job, which is stored with the job. Raises InvalidUrl."""
        self.check(url)
        webhook = Webhook(id=uuid4(), workspace_id=principal.workspace_id, url=url, events=[])
        plain = CALLBACK_REQUEST.dump_json(request)
        webhook.secret = self._encryption.encrypt(plain, secret_about(webhook.id))
        return webhook

    async def of_workspace(self, principal: Principal) -> list[Webhook]:
        """List the webhooks of a workspace, newest first."""
        return await self._database.read(webhooks_of, principal.workspace_id)

    async def get(self, principal: Principal, webhook_id: UUID) -> Webhook:
        """Get a webhook. Raises NotFound."""
        return await self._database.read(_get, principal.workspace_id, webhook_id)

    async def change(
        self, principal: Principal, webhook_id: UUID, change: WebhookChange
    ) -> Webhook:
        """Change a webhook. Raises NotFound, InvalidUrl, or InvalidRequest for the secret."""
        if change.url is not None:
            self.check(change.url)
        if change.secret is not None:
            _check_secret(change.secret)
        changed = await self._database.run(self._change, principal, webhook_id, change)
        self.events.forget(principal.workspace_id)
        return changed

    async def delete(self, principal: Principal, webhook_id: UUID) -> None:
        """Delete a webhook; pending deliveries are not sent any more. Raises NotFound."""
        await self._database.run(_delete, principal, webhook_id)
        self.events.forget(principal.workspace_id)

    async def deliveries(
        self,
        principal: Principal,
        webhook_id: UUID,
        page: int,
        limit: int,
        status: str | None = None,
    ) -> tuple[Sequence[ListedDelivery], int]:
        """List one page of deliveries, newest first, and the number of all. Raises NotFound."""

        def read(session: Session) -> tuple[list[ListedDelivery], int]:
            _get(session, principal.workspace_id, webhook_id)
            return deliveries.deliveries_of(session, webhook_id, page, limit, status)

        return await self._database.read(read)

    async def redeliver(
        self, principal: Principal, webhook_id: UUID, delivery_id: UUID
    ) -> ListedDelivery:
        """Make the delivery due at once, in any state. Raises NotFound, or InvalidRequest if the
        webhook is inactive, the event's body was deleted, or it had MOST_ATTEMPTS."""

        def redeliver(session: Session) -> ListedDelivery:
            webhook = _get(session, principal.workspace_id, webhook_id, lock=True)
            delivery_and_event = deliveries.delivery_of(session, webhook_id, delivery_id)
            if delivery_and_event is None:
                raise NotFound("the webhook has no delivery of that id")
            _require_active(webhook)
            delivery, event = delivery_and_event
            if event.body is None:
                raise InvalidRequest("the content of the event is no longer stored")
            if delivery.attempt >= MOST_ATTEMPTS:
                raise InvalidRequest(f"a message is sent at most {MOST_ATTEMPTS} times")
            deliveries.send_again(session, delivery, utc_now())
            session.flush()
            return deliveries.listed(session, [delivery])[0]

        return await self._database.run(redeliver)

    async def test(
        self, principal: Principal, webhook_id: UUID, kind: EventKind | None = None
    ) -> ListedDelivery:
        """Send a sample event to this webhook alone, by default of its first kind. Raises NotFound,
        or InvalidRequest if the webhook is inactive."""

        def send_sample(session: Session) -> ListedDelivery:
            webhook = _get(session, principal.workspace_id, webhook_id, lock=True)
            _require_active(webhook)
            wanted = [kind for kind in EVENT_KINDS if kind in webhook.events]
            chosen = wanted[0] if kind is None else kind
            event = NewEvent(chosen, {**_SAMPLES[chosen], "test": True})
            encrypt = self._encryption.encrypt_text
            (delivery,) = write_event(session, webhook.workspace_id, event, [webhook.id], encrypt)
            return deliveries.listed(session, [delivery])[0]

        return await self._database.run(send_sample)

    def _change(
        self, session: Session, principal: Principal, webhook_id: UUID, change: WebhookChange
    ) -> Webhook:
        webhook = _get(session, principal.workspace_id, webhook_id, lock=True)
        now = utc_now()
        changed = []
        if change.url is not None and change.url != webhook.url:
            webhook.url = change.url
            webhook.failing_since = None  # the failures were those of another receiver
            changed.append("url")
        if change.events is not None and _in_order(change.events) != webhook.events:
            webhook.events = _in_order(change.events)
            changed.append("events")
        if change.secret is not None and not self._is_its_secret(webhook, change.secret):
            webhook.old_secret = webhook.secret
            webhook.old_secret_until = now + OLD_SECRET_LASTS if webhook.old_secret else None
            webhook.secret = self._encrypted(webhook.id, change.secret)
            changed.append("secret")
        session.flush()
        if change.status is not None and change.status != webhook.status:
            if change.status == "active":
                webhook.status, webhook.failing_since = "active", None
            else:
                deliveries.deactivate(session, webhook, now)
            changed.append("status")
        if changed:
            details = {"changed": changed, "status": webhook.status}
            target = str(webhook.id)
            audit(
                session, webhook.workspace_id, "webhook.changed", principal.actor, target, details
            )
        return webhook

    def _is_its_secret(self, webhook: Webhook, secret: str) -> bool:
        """Whether the secret is the webhook's own: a repeated request must not end the old one."""
        if webhook.secret is None:
            return False
        try:
            current = self._encryption.decrypt(webhook.secret, secret_about(webhook.id))
        except DecryptionError:
            return False
        return current == secret.encode()

    def _encrypted(self, webhook_id: UUID, secret: str) -> bytes:
        _check_secret(secret)
        return self._encryption.encrypt(secret.encode(), secret_about(webhook_id))


def _check_secret(secret: str) -> None:
    """Raise InvalidRequest for a malformed signing secret."""
    try:
        signing_key(secret)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _in_order(events: Sequence[EventKind]) -> list[str]:
    """Return the kinds in order, each once."""
    return [kind for kind in EVENT_KINDS if kind in events]


def _get(session: Session, workspace_id: int, webhook_id: UUID, *, lock: bool = False) -> Webhook:
    webhook = webhook_of(session, workspace_id, webhook_id, lock=lock)
    if webhook is None:
        raise NotFound("no webhook has that id")
    return webhook


def _register(session: Session, webhook: Webhook, actor: str) -> None:
    lock_workspace(session, webhook.workspace_id)  # serialises the creation of webhooks
    if len(webhooks_of(session, webhook.workspace_id)) >= MAX_WEBHOOKS:
        raise InvalidRequest(f"a workspace has at most {MAX_WEBHOOKS} webhooks; delete one first")
    session.add(webhook)
    session.flush()
    details = {"events": list(webhook.events), "signed": webhook.secret is not None}
    audit(session, webhook.workspace_id, "webhook.created", actor, str(webhook.id), details)


def _delete(session: Session, principal: Principal, webhook_id: UUID) -> None:
    session.delete(_get(session, principal.workspace_id, webhook_id, lock=True))
    session.flush()
    audit(session, principal.workspace_id, "webhook.deleted", principal.actor, str(webhook_id))


def _require_active(webhook: Webhook) -> None:
    if webhook.status != "active":
        raise InvalidRequest('the webhook is inactive; PATCH it with {"status": "active"} first')
