"""The tables of what is kept for a while, and of what was done by whom."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
)
from sqlmodel import Field, SQLModel

import db.tables  # noqa: F401  (first: it says how constraints are named)
from db.columns import UtcDateTime, utc_now

_COUNTED = BigInteger().with_variant(Integer, "sqlite")


class StoredFile(SQLModel, table=True):
    """A file of a workspace in the store, until it expires or its owner goes."""

    __tablename__ = "stored_file"

    id: str = Field(primary_key=True, max_length=40)
    workspace_id: int = Field(sa_type=BigInteger, index=True)  # files outlive the row, not a sweep
    kind: str = Field(max_length=16)  # speech, sample, voice, answer
    media_type: str
    size: int = Field(sa_type=BigInteger)  # bytes
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class IdempotentAnswer(SQLModel, table=True):
    """What was answered to a request with an Idempotency-Key; or that it still runs."""

    __tablename__ = "idempotent_answer"

    workspace_id: int = Field(
        sa_column=Column(
            BigInteger, ForeignKey("workspace.id", ondelete="CASCADE"), primary_key=True
        )
    )
    path: str = Field(primary_key=True)
    key: str = Field(primary_key=True, max_length=255)
    body_digest: bytes | None = Field(default=None, sa_type=LargeBinary)  # once it was read
    lease: str | None = None  # of the request that runs
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    status: int | None = None
    headers: list[list[str]] = Field(sa_column=Column(JSON, nullable=False))
    body: bytes | None = Field(default=None, sa_type=LargeBinary)  # sealed
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


class SecretFingerprint(SQLModel, table=True):
    """A digest of a secret that the service was started with; nothing leads back to the secret."""

    __tablename__ = "secret_mark"

    name: str = Field(primary_key=True, max_length=40)
    digest: bytes = Field(sa_type=LargeBinary)


class Service(SQLModel, table=True):
    """The one row names the service, among others that use the same cluster."""

    id: str = Field(primary_key=True, max_length=32)


class AuditEntry(SQLModel, table=True):
    """One thing that somebody did; a chain of digests shows whether any was changed or removed."""

    __tablename__ = "audit_entry"
    __table_args__ = (UniqueConstraint("workspace_id", "number"), Index(None, "created_at"))

    id: int | None = Field(default=None, sa_column=Column(_COUNTED, primary_key=True))
    workspace_id: int = Field(sa_type=BigInteger)  # no foreign key: it outlives the workspace
    number: int  # from 1 in each workspace
    action: str = Field(max_length=40)  # account.created, key.deleted, webhook.disabled, …
    actor: str = Field(max_length=40)  # user:…, key:…, service
    target: str = Field(default="", max_length=80)  # id of what it was done to
    details: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))  # never content
    digest: bytes = Field(sa_type=LargeBinary)  # SHA-256 over the one before and this
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
