"""Deliveries: which are due, who is at them, and what became of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Column, ColumnElement, ForeignKey, Uuid, func, or_, update
from sqlmodel import Field, Session, SQLModel, col, select

from db.audit import SERVICE, audit
from db.database import UtcDateTime, utc_now
from db.webhooks import Delivery, Event, Webhook

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

    id: UUID
    lease: str
    number: int  # of the attempt that is to be made, from 1
    event_id: str
    kind: str
    body: str | None  # sealed; None once it was blanked
    event_at: datetime
    workspace_id: int
    webhook_id: UUID
    url: str
    secret: bytes | None  # sealed
    old_secret: bytes | None  # sealed; None also when its time is over


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of one attempt."""

    succeeded: bool
    status_code: int | None
    error: str | None
    milliseconds: int
    gone: bool = False  # the receiver wants nothing any more
    sent: bool = True  # False when it failed on our side, which does not count against the webhook


@dataclass(frozen=True, slots=True)
class FinishedDelivery:
    """What the attempt changed."""

    status: str  # of the delivery
    deactivated: bool  # the webhook, by this


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """A delivery as its owner sees it."""

    delivery: Delivery
    kind: str
    attempts: list[DeliveryAttempt]  # first to last


def is_free(now: datetime) -> ColumnElement[bool]:
    """Whether no worker is at a delivery, or the one that was is gone."""
    return or_(col(Delivery.lease_until).is_(None), col(Delivery.lease_until) <= now)


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
            Delivery.status == "pending",
            col(Delivery.next_at) <= now,
            is_free(now),
            Webhook.status == "active",
            col(Delivery.webhook_id).not_in(list(busy_webhooks)),
            col(Webhook.workspace_id).not_in(list(busy_workspaces)),
        )
        .order_by(col(Delivery.next_at))
        .limit(SEEN_AT_ONCE)
    )
    return list(session.exec(query))


def backlog(session: Session, now: datetime) -> tuple[int, datetime | None]:
    """How many deliveries are due, and since when the oldest is."""
    count, oldest = session.exec(
        select(func.count(), func.min(Delivery.next_at))
        .select_from(Delivery)
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(
            Delivery.status == "pending", col(Delivery.next_at) <= now, Webhook.status == "active"
        )
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
        .where(col(Delivery.id).in_(ids), col(Delivery.status) == "pending", is_free(now))
        # What another worker is just taking is not waited for: two could wait for each other.
        .with_for_update(skip_locked=True)
    )
    session.connection().execute(
        update(Delivery)
        .where(col(Delivery.id).in_(free))
        .values(lease=lease, lease_until=now + lasts)
    )
    query = (
        select(Delivery, Event, Webhook)
        .join(Event, col(Event.id) == col(Delivery.event_id))
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(col(Delivery.id).in_(ids), Delivery.lease == lease)
        .order_by(col(Delivery.next_at))
    )
    return [_claimed(*row, lease, now) for row in session.exec(query)]


def _claimed(delivery: Delivery, event: Event, hook: Webhook, lease: str, now: datetime) -> Claimed:
    until = hook.old_secret_until
    return Claimed(
        id=delivery.id,
        lease=lease,
        number=delivery.attempt + 1,
        event_id=event.id,
        kind=event.kind,
        body=event.body,
        event_at=event.created_at,
        workspace_id=hook.workspace_id,
        webhook_id=hook.id,
        url=hook.url,
        secret=hook.secret,
        old_secret=hook.old_secret if until is not None and until > now else None,
    )


def finish(
    session: Session,
    claimed: Claimed,
    attempt: AttemptResult,
    now: datetime,
    next_at: datetime | None,
    give_up_after: timedelta,
) -> FinishedDelivery | None:
    """Notes the attempt. None when the delivery was deleted, or its lease has been taken over.

    After a failure there is another attempt at `next_at`, if that is not None. A webhook becomes
    inactive when its receiver is gone, or when at least two messages failed, and none got through,
    for `give_up_after`.
    """
    # The webhook's row first, as everywhere: two that take turns cannot wait for each other.
    webhook = session.get(Webhook, claimed.webhook_id, with_for_update={"key_share": True})
    if webhook is None:
        return None
    if attempt.succeeded:
        status = "delivered"
    elif next_at is None:
        status = "failed"
    else:
        status = "pending" if webhook.status == "active" else "cancelled"
    values = {"status": status, "attempt": claimed.number, "lease": None, "lease_until": None}
    if status == "pending":
        values["next_at"] = next_at
    found = session.connection().execute(
        update(Delivery)
        .where(col(Delivery.id) == claimed.id, col(Delivery.lease) == claimed.lease)
        .values(**values)
    )
    if found.rowcount == 0:
        return None
    session.add(
        DeliveryAttempt(
            delivery_id=claimed.id,
            number=claimed.number,
            status_code=attempt.status_code,
            error=attempt.error,
            milliseconds=attempt.milliseconds,
            created_at=now,
        )
    )
    session.flush()
    deactivated = attempt.sent and _note_result(session, webhook, attempt, now, give_up_after)
    if deactivated:
        reason = {"reason": "gone" if attempt.gone else "failing"}
        audit(session, webhook.workspace_id, "webhook.disabled", SERVICE, str(webhook.id), reason)
    return FinishedDelivery(
        "cancelled" if deactivated and status == "pending" else status, deactivated
    )


def _note_result(
    session: Session,
    webhook: Webhook,
    attempt: AttemptResult,
    now: datetime,
    give_up_after: timedelta,
) -> bool:
    """Whether this made the webhook inactive."""
    if attempt.succeeded:
        if webhook.failing_since is not None:
            webhook.failing_since = None
            session.add(webhook)
        return False
    if webhook.failing_since is None:
        webhook.failing_since = now
        session.add(webhook)
    if webhook.status != "active":
        return False
    failing_long = now - webhook.failing_since >= give_up_after
    if not attempt.gone and not (failing_long and _failed_messages(session, webhook) >= 2):
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


def activate(session: Session, webhook: Webhook) -> None:
    """Delivers what happens from now on; the row is locked."""
    webhook.status = "active"
    webhook.failing_since = None
    session.add(webhook)


def deactivate(session: Session, webhook: Webhook, now: datetime) -> None:
    """Ends its deliveries, which can be sent again by hand; the row is locked.

    One that a worker is at ends by itself.
    """
    webhook.status = "inactive"
    session.add(webhook)
    session.flush()
    session.connection().execute(
        update(Delivery)
        .where(
            col(Delivery.webhook_id) == webhook.id,
            col(Delivery.status) == "pending",
            or_(col(Delivery.lease_until).is_(None), col(Delivery.lease_until) <= now),
        )
        .values(status="cancelled", lease=None, lease_until=None)
    )


def deliveries_of(
    session: Session, webhook_id: UUID, page: int, limit: int, status: str | None
) -> tuple[list[ListedDelivery], int]:
    """One page, newest first, and the number of all; `page` counts from 1."""
    conditions = [col(Delivery.webhook_id) == webhook_id]
    if status is not None:
        conditions.append(col(Delivery.status) == status)
    total = session.exec(select(func.count()).select_from(Delivery).where(*conditions)).one()
    rows = session.exec(
        select(Delivery, Event.kind)
        .join(Event, col(Event.id) == col(Delivery.event_id))
        .where(*conditions)
        .order_by(col(Delivery.created_at).desc(), col(Delivery.id))
        .offset((page - 1) * limit)
        .limit(limit)
    ).all()
    return _with_attempts(session, rows), total


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


def listed(session: Session, delivery: Delivery, kind: str) -> ListedDelivery:
    return _with_attempts(session, [(delivery, kind)])[0]


def send_again(session: Session, delivery: Delivery, now: datetime) -> None:
    """Makes it due at once; one that a worker is at stays with it. The row is locked."""
    if delivery.status == "pending" and delivery.lease_until and delivery.lease_until > now:
        return
    delivery.status = "pending"
    delivery.next_at = now
    delivery.lease = delivery.lease_until = None
    session.add(delivery)


def _with_attempts(session: Session, rows: Sequence[tuple[Delivery, str]]) -> list[ListedDelivery]:
    ids = [delivery.id for delivery, _ in rows]
    attempts: dict[UUID, list[DeliveryAttempt]] = {delivery_id: [] for delivery_id in ids}
    query = (
        select(DeliveryAttempt)
        .where(col(DeliveryAttempt.delivery_id).in_(ids))
        .order_by(col(DeliveryAttempt.number))
    )
    for attempt in session.exec(query):
        attempts[attempt.delivery_id].append(attempt)
    return [ListedDelivery(delivery, kind, attempts[delivery.id]) for delivery, kind in rows]
