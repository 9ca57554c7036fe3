"""Deliveries of webhooks: due deliveries, their leases, attempts and results."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import CTE, ColumnElement, func, literal, update
from sqlalchemy.orm import aliased
from sqlmodel import Field, Session, SQLModel, col, select, tuple_

from db.audit import SERVICE, audit
from db.database import UtcDateTime, change_rows, is_free, page_of, utc_now
from db.webhooks import Delivery, Event, Webhook

OURS = {"body_not_kept", "seal_broken", "internal"}  # errors that are not the receiver's fault
PENDING = literal("pending", literal_execute=True)  # SQLite's planner does not see parameters


class DeliveryAttempt(SQLModel, table=True):
    """One attempt; the receiver's response body is not stored."""

    __tablename__ = "delivery_attempt"

    delivery_id: UUID = Field(foreign_key="delivery.id", ondelete="CASCADE", primary_key=True)
    number: int = Field(primary_key=True)  # from 1
    status_code: int | None = None  # None without a response
    error: str | None = None  # the class of the error: timeout, refused address, tls, …
    milliseconds: int
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery under a worker's lease, with the data for its attempt."""

    delivery: Delivery
    event: Event
    webhook: Webhook
    secrets: list[bytes]  # signing secrets, encrypted


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one attempt, without the receiver's response body."""

    status_code: int | None
    error: str | None  # timeout, dns, refused_address, tls, connection, protocol, or one of OURS
    milliseconds: int
    retry_after_s: float | None = None

    @property
    def succeeded(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300

    @property
    def is_gone(self) -> bool:
        """Whether the receiver has unsubscribed by its status code."""
        return self.status_code == 410

    @property
    def is_ours(self) -> bool:
        """Whether the failure is ours, and does not count against the webhook."""
        return self.error in OURS


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """A delivery in the lists of its owner."""

    delivery: Delivery
    kind: str
    attempts: list[DeliveryAttempt]  # first to last


def due(session: Session, now: datetime) -> list[tuple[UUID, UUID, int]]:
    """Lists each webhook's earliest due delivery, with webhook and workspace, earliest first. Takes
    10 µs per webhook with pending deliveries, regardless of their number."""
    waiting = _webhooks_with_pending()
    first = aliased(Delivery)
    longest_due = (
        select(first.id)
        .where(
            first.webhook_id == waiting.c.id,
            first.status == PENDING,
            first.next_at <= now,
            is_free(first.lease_until, now),
        )
        .order_by(col(first.next_at))
        .limit(1)
        .scalar_subquery()
    )
    query = (
        select(Delivery.id, Webhook.id, Webhook.workspace_id)
        .select_from(waiting)
        .join(Webhook, col(Webhook.id) == waiting.c.id)
        .join(Delivery, col(Delivery.id) == longest_due)
        .where(Webhook.status == "active")
        .order_by(col(Delivery.next_at))
    )
    return list(session.exec(query))


def _webhooks_with_pending() -> CTE:
    """Selects the ids of webhooks with pending deliveries, by a loose index scan. DISTINCT would
    read every pending delivery. Sorts as the index of pending deliveries does: for another
    order, PostgreSQL might use an index that also has delivered ones."""
    ids = select(Delivery.webhook_id).where(Delivery.status == PENDING)
    ids = ids.order_by(col(Delivery.webhook_id), col(Delivery.next_at)).limit(1)
    waiting = select(ids.scalar_subquery().label("id")).cte("waiting", recursive=True)
    following = ids.where(col(Delivery.webhook_id) > waiting.c.id).scalar_subquery()
    return waiting.union_all(select(following).where(waiting.c.id.is_not(None)))


def backlog(session: Session, now: datetime) -> tuple[int, datetime | None]:
    """Counts due deliveries; also returns since when the oldest delivery to a healthy webhook is
    due."""
    prompt = col(Webhook.failing_since).is_(None)  # receivers that hang cause no alert
    count, oldest = session.exec(
        select(func.count(), func.min(Delivery.next_at).filter(prompt))
        .select_from(Delivery)
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(
            col(Delivery.status) == PENDING,
            col(Webhook.status) == "active",
            col(Delivery.next_at) <= now,
        )
    ).one()
    return count, oldest


def claim(
    session: Session, ids: Sequence[UUID], lease: str, now: datetime, lasts: timedelta
) -> list[Claimed]:
    """Claims due deliveries that no other dispatcher has leased; `lease` is a new unique name. The
    lease of a worker that dies expires after `lasts`."""
    free = (
        select(Delivery.id)
        .where(
            col(Delivery.id).in_(ids),
            col(Delivery.status) == "pending",
            is_free(Delivery.lease_until, now),
        )
        # Rows that another worker is claiming are skipped: waiting for them could deadlock.
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
    """Records the attempt, unless the delivery was deleted or another worker has taken its lease.

    After a failure the next attempt is at `next_at`, if that is not None. Returns whether this made
    the webhook inactive: when its receiver is gone, or when for `give_up_after` at least two
    messages failed and none was delivered.
    """
    # The webhook's row is locked first, as everywhere in this module, against deadlocks.
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
    session.add(_attempt_row(claimed.delivery.id, number, attempt, now))
    if status != "pending" and webhook.job_id is not None:
        webhook.secret = None  # a callback sends nothing else
    session.flush()
    if attempt.is_ours or not _record_result(session, webhook, attempt, now, give_up_after):
        return False
    reason = {"reason": "gone" if attempt.is_gone else "failing"}
    audit(session, webhook.workspace_id, "webhook.disabled", SERVICE, str(webhook.id), reason)
    return True


def finish_delivered(
    session: Session, done: Sequence[tuple[Claimed, AttemptResult]], now: datetime
) -> set[UUID]:
    """Records successful attempts together; returns the deliveries that were recorded. The rest are
    left to `finish`: another worker has their lease, or their webhook's row is locked, and to wait
    for it while holding other rows could deadlock."""
    rows = select(Webhook.id).where(col(Webhook.id).in_({claim.webhook.id for claim, _ in done}))
    hooks = set(session.exec(rows.with_for_update(skip_locked=True, key_share=True)))
    failing = col(Webhook.id).in_(hooks), col(Webhook.failing_since).is_not(None)
    change_rows(session, update(Webhook).where(*failing).values(failing_since=None))
    ours = [(c.delivery.id, c.delivery.lease) for c, _ in done if c.webhook.id in hooks]
    ended = update(Delivery).where(tuple_(col(Delivery.id), col(Delivery.lease)).in_(ours))
    values = {"status": "delivered", "attempt": Delivery.attempt + 1, "lease": None}
    ended = ended.values(**values, lease_until=None)
    recorded = session.connection().execute(
        ended.returning(col(Delivery.id), col(Delivery.attempt))
    )
    numbers = {id: number for id, number in recorded}
    attempts = {claim.delivery.id: attempt for claim, attempt in done}
    delivered = (claim for claim, _ in done if claim.delivery.id in numbers)
    callbacks = {claim.webhook.id for claim in delivered if claim.webhook.job_id is not None}
    if callbacks:
        ended_callbacks = update(Webhook).where(col(Webhook.id).in_(callbacks))
        change_rows(session, ended_callbacks.values(secret=None))
    session.add_all(_attempt_row(id, number, attempts[id], now) for id, number in numbers.items())
    return set(numbers)


def _attempt_row(
    delivery: UUID, number: int, attempt: AttemptResult, now: datetime
) -> DeliveryAttempt:
    return DeliveryAttempt(
        delivery_id=delivery,
        number=number,
        status_code=attempt.status_code,
        error=attempt.error,
        milliseconds=attempt.milliseconds,
        created_at=now,
    )


def _record_result(
    session: Session,
    webhook: Webhook,
    attempt: AttemptResult,
    now: datetime,
    give_up_after: timedelta,
) -> bool:
    """Updates the webhook; returns whether this made it inactive."""
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
    """Counts the messages with attempts since `failing_since`, all of which failed."""
    return session.exec(
        select(func.count(func.distinct(DeliveryAttempt.delivery_id)))
        .join(Delivery, col(Delivery.id) == col(DeliveryAttempt.delivery_id))
        .where(
            Delivery.webhook_id == webhook.id,
            col(DeliveryAttempt.created_at) >= webhook.failing_since,
        )
    ).one()


def deactivate(session: Session, webhook: Webhook, now: datetime) -> None:
    """Makes a locked webhook inactive and cancels its deliveries, which its owner can resend.
    Deliveries under a worker's lease are not cancelled."""
    webhook.status = "inactive"
    session.add(webhook)
    session.flush()
    cancel(session, now, col(Delivery.webhook_id) == webhook.id)


def cancel(session: Session, now: datetime, *which: ColumnElement[bool]) -> int:
    """Cancels these deliveries if they are pending without a lease; returns how many."""
    waiting = (col(Delivery.status) == "pending", is_free(Delivery.lease_until, now), *which)
    ended = {"status": "cancelled", "lease": None, "lease_until": None}
    return change_rows(session, update(Delivery).where(*waiting).values(**ended))


def deliveries_of(
    session: Session, webhook_id: UUID, page: int, limit: int, status: str | None
) -> tuple[list[ListedDelivery], int]:
    """Lists one page of deliveries, newest first, and their total number; `page` counts from 1."""
    query = select(Delivery).where(Delivery.webhook_id == webhook_id)
    if status is not None:
        query = query.where(Delivery.status == status)
    query = query.order_by(col(Delivery.created_at).desc(), col(Delivery.id))
    deliveries, total = page_of(session, query, page, limit)
    return listed(session, deliveries), total


def delivery_of(
    session: Session, webhook_id: UUID, delivery_id: UUID
) -> tuple[Delivery, Event] | None:
    """Finds a delivery, locked until the commit, and its event."""
    query = (
        select(Delivery, Event)
        .join(Event, col(Event.id) == col(Delivery.event_id))
        .where(Delivery.id == delivery_id, Delivery.webhook_id == webhook_id)
        .with_for_update(of=Delivery)
    )
    return session.exec(query).one_or_none()


def callback_status(session: Session, job_id: UUID) -> int | None:
    """Returns the status with which the receiver of a job's callback last answered."""
    attempts = (
        select(DeliveryAttempt.status_code)
        .join(Delivery, col(Delivery.id) == col(DeliveryAttempt.delivery_id))
        .join(Webhook, col(Webhook.id) == col(Delivery.webhook_id))
        .where(Webhook.job_id == job_id)
        .order_by(col(DeliveryAttempt.number).desc())
    )
    return session.exec(attempts.limit(1)).one_or_none()


def send_again(session: Session, delivery: Delivery, now: datetime) -> None:
    """Makes the delivery due at once; a worker's lease on it stays. The row must be locked."""
    if delivery.status == "pending" and delivery.lease_until and delivery.lease_until > now:
        return
    delivery.status = "pending"
    delivery.next_at = now
    delivery.lease = delivery.lease_until = None
    session.add(delivery)


def listed(session: Session, deliveries: Sequence[Delivery]) -> list[ListedDelivery]:
    """Adds kinds of events and attempts; omits deliveries whose event was deleted meanwhile."""
    event_ids = [delivery.event_id for delivery in deliveries]
    kinds = select(Event.id, Event.kind).where(col(Event.id).in_(event_ids))
    kind_of = dict(session.exec(kinds).all())
    attempts: dict[UUID, list[DeliveryAttempt]] = defaultdict(list)
    query = (
        select(DeliveryAttempt)
        .where(col(DeliveryAttempt.delivery_id).in_([delivery.id for delivery in deliveries]))
        .order_by(col(DeliveryAttempt.number))
    )
    for attempt in session.exec(query):
        attempts[attempt.delivery_id].append(attempt)
    return [
        ListedDelivery(delivery, kind_of[delivery.event_id], attempts[delivery.id])
        for delivery in deliveries
        if delivery.event_id in kind_of
    ]
