"""The tables of webhooks: the outbox of events, and what became of each delivery."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlmodel import Field, SQLModel

import db.tables  # noqa: F401  (first: it says how constraints are named)
from db.columns import UtcDateTime, utc_now


class Webhook(SQLModel, table=True):
    """An address that wants to be told of events."""

    id: UUID = Field(sa_column=Column(Uuid, primary_key=True))
    workspace_id: int = Field(
        sa_column=Column(
            BigInteger,
            ForeignKey("workspace.id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        )
    )
    url: str = Field(max_length=2048)
    events: list[str] = Field(sa_column=Column(JSON, nullable=False))
    status: str = "active"  # or inactive
    secret: bytes | None = Field(default=None, sa_type=LargeBinary)  # sealed
    old_secret: bytes | None = Field(default=None, sa_type=LargeBinary)  # sealed; while it rotates
    old_secret_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    failing_since: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the first failure
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class Event(SQLModel, table=True):
    """What happened, as it is sent; written in the transaction that made it happen."""

    __table_args__ = (
        Index(
            "ix_event_with_body",
            "workspace_id",
            sqlite_where=text("body IS NOT NULL"),
            postgresql_where=text("body IS NOT NULL"),
        ),
    )

    id: str = Field(primary_key=True, max_length=40)  # evt_…; no dot, which signatures join with
    workspace_id: int = Field(
        sa_column=Column(
            BigInteger, ForeignKey("workspace.id", ondelete="CASCADE"), nullable=False, index=True
        )
    )
    kind: str = Field(max_length=32)
    body: str | None = Field(default=None, sa_type=Text)  # sealed; None once it was blanked
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime, index=True)


class Delivery(SQLModel, table=True):
    """One event on its way to one webhook."""

    __table_args__ = (
        UniqueConstraint("event_id", "webhook_id"),
        Index("ix_delivery_status_next_at", "status", "next_at"),
        Index("ix_delivery_webhook_id_created_at", "webhook_id", "created_at"),
    )

    id: UUID = Field(sa_column=Column(Uuid, primary_key=True))
    event_id: str = Field(
        sa_column=Column(ForeignKey("event.id", ondelete="CASCADE"), nullable=False)
    )
    webhook_id: UUID = Field(
        sa_column=Column(Uuid, ForeignKey("webhook.id", ondelete="CASCADE"), nullable=False)
    )
    status: str = "pending"  # or delivered, failed, cancelled
    attempt: int = 0  # how many were made
    next_at: datetime = Field(sa_type=UtcDateTime)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    lease: str | None = None  # of the worker that is at it
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


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
