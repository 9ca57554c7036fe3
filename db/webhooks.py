"""Webhooks of workspaces, and the outbox of their events. Webhooks of other workspaces are treated
as nonexistent. Events are written in the transaction that causes them."""

import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID, uuid4

from sqlalchemy import JSON, Column, Index, LargeBinary, Text, UniqueConstraint, text
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import Workspace, workspace_reference
from db.database import UtcDateTime, iso_moment, utc_now

EventKind = Literal[
    "tts.completed",
    "tts.failed",
    "stt.completed",
    "stt.failed",
    "agent.session.completed",
    "voice.created",
    "voice.ready",
    "voice.failed",
    "job.completed",
    "job.failed",
]
EVENT_KINDS: tuple[EventKind, ...] = get_args(EventKind)
EncryptText = Callable[[str, str], str]
"""Encrypts a text, bound to a context, since bodies contain users' texts."""


class Webhook(SQLModel, table=True):
    """A URL that is subscribed to events, or the callback of a single job, which is not listed."""

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    job_id: UUID | None = Field(default=None, index=True)  # job whose end a callback reports
    url: str = Field(max_length=2048)
    events: list[str] = Field(sa_column=Column(JSON, nullable=False))
    status: str = "active"  # or inactive
    # Encrypted. A callback has the JSON object of its CallbackRequest here.
    secret: bytes | None = Field(default=None, sa_type=LargeBinary)
    old_secret: bytes | None = Field(default=None, sa_type=LargeBinary)  # while it rotates
    old_secret_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    failing_since: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the first failure
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class Event(SQLModel, table=True):
    """An event in the outbox; written in the transaction that causes it."""

    __table_args__ = (
        Index(
            "ix_event_with_body",
            "workspace_id",
            sqlite_where=text("body IS NOT NULL"),
            postgresql_where=text("body IS NOT NULL"),
        ),
    )

    # evt_…, without dots, which separate the parts of a signature.
    id: str = Field(primary_key=True, max_length=40)
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    kind: str = Field(max_length=32)
    body: str | None = Field(default=None, sa_type=Text)  # encrypted; None: blanked
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime, index=True)


class Delivery(SQLModel, table=True):
    """The delivery of one event to one webhook."""

    __table_args__ = (
        UniqueConstraint("event_id", "webhook_id"),
        Index(
            "ix_delivery_pending",
            "webhook_id",
            "next_at",
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        Index("ix_delivery_webhook_id_created_at", "webhook_id", "created_at"),
    )

    id: UUID = Field(primary_key=True)
    event_id: str = Field(foreign_key="event.id", ondelete="CASCADE", max_length=40)
    webhook_id: UUID = Field(foreign_key="webhook.id", ondelete="CASCADE")
    status: str = "pending"  # or delivered, failed, cancelled
    attempt: int = 0  # number of attempts so far
    next_at: datetime = Field(sa_type=UtcDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    lease: str | None = None  # lease of the worker that delivers it
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def webhooks_of(session: Session, workspace_id: int) -> list[Webhook]:
    """Lists the webhooks of a workspace, newest first, without callbacks."""
    query = (
        select(Webhook)
        .where(Webhook.workspace_id == workspace_id, col(Webhook.job_id).is_(None))
        .order_by(col(Webhook.created_at).desc(), col(Webhook.id))
    )
    return list(session.exec(query))


def webhook_of(
    session: Session, workspace_id: int, webhook_id: UUID, *, lock: bool = False
) -> Webhook | None:
    """Finds a webhook; None without it. `lock` locks its row until the commit; other rows can still
    refer to it."""
    query = select(Webhook).where(Webhook.id == webhook_id, Webhook.workspace_id == workspace_id)
    query = query.where(col(Webhook.job_id).is_(None))
    if lock:
        query = query.with_for_update(key_share=True)
    return session.exec(query).one_or_none()


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event of a workspace and its data."""

    kind: EventKind
    data: dict[str, Any]
    callback: UUID | None = None  # the one webhook that gets it; the body is then only the data


def callback_of(session: Session, job_id: UUID) -> UUID | None:
    """Finds the callback of a job, and locks its row until the commit; other rows can still refer
    to it."""
    query = select(Webhook.id).where(Webhook.job_id == job_id)
    return session.exec(query.with_for_update(key_share=True)).one_or_none()


def body_about(workspace_id: int, event_id: str) -> str:
    """Returns the context that the encryption of an event's body is bound to."""
    return f"event:{workspace_id}:{event_id}"


def secret_about(webhook_id: UUID) -> str:
    """Returns the context that the encryption of a webhook's secret is bound to."""
    return f"webhook:{webhook_id}"


def add_event(
    session: Session, workspace_id: int, event: NewEvent, encrypt: EncryptText
) -> str | None:
    """Adds an event with a delivery for each active webhook subscribed to its kind; returns its id.
    Returns None, and writes nothing, when there is no such webhook."""
    callback = event.callback
    wanting = [callback] if callback else _wanting_webhooks(session, workspace_id, event.kind)
    if not wanting:
        return None
    return write_event(session, workspace_id, event, wanting, encrypt)[0].event_id


def write_event(
    session: Session,
    workspace_id: int,
    event: NewEvent,
    webhook_ids: Iterable[UUID],
    encrypt: EncryptText,
) -> list[Delivery]:
    """Adds the event with a delivery to each of the webhooks, whose rows must be locked."""
    now = utc_now()
    # Ids sort by time, and have no dots, which separate parts of signatures.
    event_id = f"evt_{int(now.timestamp() * 1000):012x}{secrets.token_hex(10)}"
    row = Event(
        id=event_id,
        workspace_id=workspace_id,
        kind=event.kind,
        body=encrypt(_body(event, now), body_about(workspace_id, event_id)),
        created_at=now,
    )
    session.add(row)
    session.flush()
    deliveries = [
        Delivery(id=uuid4(), event_id=row.id, webhook_id=webhook_id, next_at=now, created_at=now)
        for webhook_id in webhook_ids
    ]
    session.add_all(deliveries)
    session.flush()
    return deliveries


def wanted_kinds(session: Session, workspace_id: int) -> frozenset[str]:
    """Returns the kinds of events that the workspace's active webhooks are subscribed to."""
    lists = session.exec(
        select(Webhook.events).where(
            Webhook.workspace_id == workspace_id, Webhook.status == "active"
        )
    )
    return frozenset(kind for kinds in lists for kind in kinds)


def _wanting_webhooks(session: Session, workspace_id: int, kind: EventKind) -> list[UUID]:
    # Locks the rows until the commit, the workspace's first: otherwise a concurrent deletion would
    # break the transaction of the event.
    query = (
        select(Webhook.id, Webhook.events)
        .select_from(Workspace)
        .join(Webhook, col(Webhook.workspace_id) == col(Workspace.id))
        .where(Workspace.id == workspace_id, Webhook.status == "active")
        .with_for_update(read=True, key_share=True)
    )
    return [webhook_id for webhook_id, kinds in session.exec(query) if kind in kinds]


def _body(event: NewEvent, now: datetime) -> str:
    """Makes the body that is signed and sent, identical in each attempt."""
    whole = {"event": event.kind, "timestamp": iso_moment(now), "data": event.data}
    return json.dumps(
        event.data if event.callback else whole,
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    )
