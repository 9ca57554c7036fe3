"""Deliveries: which are due, who is at them, and what became of them."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Column, ColumnElement, ForeignKey, Uuid, func, update
from sqlmodel import Field, Session, SQLModel, col, select

from db.audit import SERVICE, audit
from db.database import UtcDateTime, change_rows, is_free, page_of, utc_now
from db.webhooks import Delivery, Event, Webhook

OURS = {"body_not_kept", "seal_broken", "internal"}
SEEN_AT_ONCE = 200  # due deliveries; those of webhooks that are busy are not among them


class DeliveryAttempt(SQLModel, table=True):
    """One try; the receiver's answer is not kept."""

    __tablename__ = "delivery_attempt"

    delivery_id: UUID = Field(
        sa_column=Column(Uuid, ForeignKey("delivery.id", ondelete="CASCADE"), primary_key=True)
    )
    number: int = Field(primary_key=True)  # from 1
    status_code: int | None = None  # None when there was no answer
    error: str | None = None  # its class: timeout, refused address, tls, …
    milliseconds: int
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that one worker is at, and all that it needs to know."""

    delivery: Delivery
    event: Event
    webhook: Webhook
    secrets: list[bytes]  # those that sign, encrypted


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came back of one attempt; never what the receiver said."""

    status_code: int | None
    error: str | None  # timeout, dns, refused_address, tls, connection, protocol, or one of OURS
    milliseconds: int
    retry_after_s: float | None = None

    @property
    def succeeded(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300

    @property
    def is_gone(self) -> bool:
        """The receiver wants nothing any more."""
        return self.status_code == 410

    @property
    def is_ours(self) -> bool:
        """It failed on our side, which does not count against the webhook."""
        return self.error in OURS


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """A delivery as its owner sees it."""

    delivery: Delivery
    kind: str
    attempts: list[DeliveryAttempt]  # first to last


def due(
    session: Session,
    now: datetime,
    busy_webhooks: Collection[UUID],
    busy_workspaces: Collection[int],
) -> list[tuple[UUID, UUID, int]]:
    """Ids of deliveries, of their webhooks and of their workspaces, the longest due first; none of
    those that are busy."""
    query = (
        select(Delivery.id, Delivery.webhook_id, Webhook.workspace_id)
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(
            *_due(now),
            is_free(Delivery.lease_until, now),
            col(Delivery.webhook_id).not_in(list(busy_webhooks)),
            col(Webhook.workspace_id).not_in(list(busy_workspaces)),
        )
        .order_by(col(Delivery.next_at))
        .limit(SEEN_AT_ONCE)
    )
    return list(session.exec(query))


def _due(now: datetime) -> tuple[ColumnElement[bool], ...]:
    waiting, active = col(Delivery.status) == "pending", col(Webhook.status) == "active"
    return (waiting, active, col(Delivery.next_at) <= now)


def backlog(session: Session, now: datetime) -> tuple[int, datetime | None]:
    """How many deliveries are due, and since when the oldest is."""
    count, oldest = session.exec(
        select(func.count(), func.min(Delivery.next_at))
        .select_from(Delivery)
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(*_due(now))
    ).one()
    return count, oldest


def claim(
    session: Session, ids: Sequence[UUID], lease: str, now: datetime, lasts: timedelta
) -> list[Claimed]:
    """Claims due deliveries that no other dispatcher has leased; `lease` is a new unique name.

    A worker that dies keeps them for `lasts`; then another takes them.
    """
    free = (
        select(Delivery.id)
        .where(
            col(Delivery.id).in_(ids),
            col(Delivery.status) == "pending",
            is_free(Delivery.lease_until, now),
        )
        # What another worker is just taking is not waited for: two could wait for each other.
        .with_for_update(skip_locked=True)
    )
    taken = update(Delivery).where(col(Delivery.id).in_(free))
    change_rows(session, taken.values(lease=lease, lease_until=now + lasts))
    query = (
        select(Delivery, Event, Webhook)
        .join(Event, col(Event.id) == col(Delivery.event_id))
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(col(Delivery.id).in_(ids), Delivery.lease == lease)
        .order_by(col(Delivery.next_at))
    )
    claimed = []
    for delivery, event, webhook in session.exec(query):
        signing = [webhook.secret]
        if webhook.old_secret_until is not None and webhook.old_secret_until > now:
            signing.append(webhook.old_secret)
        secrets = [secret for secret in signing if secret is not None]
        claimed.append(Claimed(delivery, event, webhook, secrets))
    return claimed


def finish(
    session: Session,
    claimed: Claimed,
    attempt: AttemptResult,
    now: datetime,
    next_at: datetime | None,
    give_up_after: timedelta,
) -> bool:
    """Notes the attempt, unless the delivery was deleted or its lease has been taken over.

    After a failure there is another attempt at `next_at`, if that is not None. Returns whether this
    made the webhook inactive: when its receiver is gone, or when at least two messages failed, and
    none got through, for `give_up_after`.
    """
    # The webhook's row first, as everywhere: two that take turns cannot wait for each other.
    webhook = session.get(Webhook, claimed.webhook.id, with_for_update={"key_share": True})
    if webhook is None:
        return False
    if attempt.succeeded:
        status = "delivered"
    elif next_at is None:
        status = "failed"
    else:
        status = "pending" if webhook.status == "active" else "cancelled"
    number = claimed.delivery.attempt + 1
    values = {"status": status, "attempt": number, "lease": None, "lease_until": None}
    if status == "pending":
        values["next_at"] = next_at
    held = claimed.delivery
    ours = (col(Delivery.id) == held.id, col(Delivery.lease) == held.lease)
    if not change_rows(session, update(Delivery).where(*ours).values(**values)):
        return False
    session.add(
        DeliveryAttempt(
            delivery_id=claimed.delivery.id,
            number=number,
            status_code=attempt.status_code,
            error=attempt.error,
            milliseconds=attempt.milliseconds,
            created_at=now,
        )
    )
    session.flush()
    if attempt.is_ours or not _note_result(session, webhook, attempt, now, give_up_after):
        return False
    reason = {"reason": "gone" if attempt.is_gone else "failing"}
    audit(session, webhook.workspace_id, "webhook.disabled", SERVICE, str(webhook.id), reason)
    return True


def _note_result(
    session: Session,
    webhook: Webhook,
    attempt: AttemptResult,
    now: datetime,
    give_up_after: timedelta,
) -> bool:
    """Whether this made the webhook inactive."""
    session.add(webhook)
    if attempt.succeeded:
        webhook.failing_since = None
        return False
    webhook.failing_since = since = webhook.failing_since or now
    if webhook.status != "active":
        return False
    failing_long = now - since >= give_up_after
    if not attempt.is_gone and not (failing_long and _failed_messages(session, webhook) >= 2):
        return False
    deactivate(session, webhook, now)
    return True


def _failed_messages(session: Session, webhook: Webhook) -> int:
    """Since it began to fail; asked only when that is long ago."""
    return session.exec(
        select(func.count(func.distinct(DeliveryAttempt.delivery_id)))
        .join(Delivery, col(Delivery.id) == col(DeliveryAttempt.delivery_id))
        .where(
            Delivery.webhook_id == webhook.id,
            col(DeliveryAttempt.created_at) >= webhook.failing_since,
        )
    ).one()


def deactivate(session: Session, webhook: Webhook, now: datetime) -> None:
    """Ends its deliveries, which can be sent again by hand; the row is locked.

    One that a worker is at ends by itself.
    """
    webhook.status = "inactive"
    session.add(webhook)
    session.flush()
    cancel(session, now, col(Delivery.webhook_id) == webhook.id)


def cancel(session: Session, now: datetime, *which: ColumnElement[bool]) -> int:
    """Ends those deliveries that wait and that no worker is at; how many there were."""
    waiting = (col(Delivery.status) == "pending", is_free(Delivery.lease_until, now), *which)
    ended = {"status": "cancelled", "lease": None, "lease_until": None}
    return change_rows(session, update(Delivery).where(*waiting).values(**ended))


def deliveries_of(
    session: Session, webhook_id: UUID, page: int, limit: int, status: str | None
) -> tuple[list[ListedDelivery], int]:
    """One page, newest first, and the number of all; `page` counts from 1."""
    query = select(Delivery).where(Delivery.webhook_id == webhook_id)
    if status is not None:
        query = query.where(Delivery.status == status)
    query = query.order_by(col(Delivery.created_at).desc(), col(Delivery.id))
    found, total = page_of(session, query, page, limit)
    return listed(session, found), total


def delivery_of(
    session: Session, webhook_id: UUID, delivery_id: UUID
) -> tuple[Delivery, Event] | None:
    """The delivery, kept from others until the commit, and its event."""
    query = (
        select(Delivery, Event)
        .join(Event, col(Event.id) == col(Delivery.event_id))
        .where(Delivery.id == delivery_id, Delivery.webhook_id == webhook_id)
        .with_for_update(of=Delivery)
    )
    return session.exec(query).one_or_none()


def send_again(session: Session, delivery: Delivery, now: datetime) -> None:
    """Makes it due at once; one that a worker is at stays with it. The row is locked."""
    if delivery.status == "pending" and delivery.lease_until and delivery.lease_until > now:
        return
    delivery.status = "pending"
    delivery.next_at = now
    delivery.lease = delivery.lease_until = None
    session.add(delivery)


def listed(session: Session, found: Sequence[Delivery]) -> list[ListedDelivery]:
    """With the kinds of their events, and their attempts; without those whose event was deleted
    since they were found."""
    kinds = select(Event.id, Event.kind).where(col(Event.id).in_([one.event_id for one in found]))
    kind_of = dict(session.exec(kinds).all())
    attempts: dict[UUID, list[DeliveryAttempt]] = defaultdict(list)
    query = (
        select(DeliveryAttempt)
        .where(col(DeliveryAttempt.delivery_id).in_([one.id for one in found]))
        .order_by(col(DeliveryAttempt.number))
    )
    for attempt in session.exec(query):
        attempts[attempt.delivery_id].append(attempt)
    return [
        ListedDelivery(one, kind_of[one.event_id], attempts[one.id])
        for one in found
        if one.event_id in kind_of
    ]
