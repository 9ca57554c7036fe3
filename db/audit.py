"""The audit log: append-only rows, each with a digest over all before it (a hash chain)."""

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary, UniqueConstraint, text
from sqlmodel import Field, Session, SQLModel, col, select

from db.database import AUTO_INCREMENT, UtcDateTime, page_of, utc_now

SERVICE = "service"
"""The actor of actions of the service itself."""

_LOCK_SPACE = 1 << 60  # offset that separates workspaces' locks from other advisory locks


class AuditEntry(SQLModel, table=True):
    """One action of an actor; the hash chain shows whether an entry was changed or removed."""

    __tablename__ = "audit_entry"
    __table_args__ = (UniqueConstraint("workspace_id", "number"), Index(None, "created_at"))

    id: int | None = Field(default=None, sa_column=Column(AUTO_INCREMENT, primary_key=True))
    workspace_id: int = Field(sa_type=BigInteger)  # no foreign key: it outlives the workspace
    number: int  # from 1 in each workspace
    action: str = Field(max_length=40)  # account.created, key.deleted, webhook.disabled, …
    actor: str = Field(max_length=40)  # user:…, key:…, service
    target: str = Field(default="", max_length=80)  # id of the object of the action
    details: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))  # never content
    digest: bytes = Field(sa_type=LargeBinary)  # SHA-256 over the previous digest and this entry
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def audit(
    session: Session,
    workspace_id: int,
    action: str,
    actor: str,
    target: str = "",
    details: dict[str, Any] | None = None,
) -> None:
    """Records that `actor` did `action` to `target`, in the transaction of the action. `details`
    has JSON values and never content of users. Call it last in a transaction: on PostgreSQL the
    workspace's chain is locked from here on."""
    if session.get_bind().dialect.name == "postgresql":
        session.connection().execute(
            text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_SPACE | workspace_id}
        )
    last = session.exec(
        select(AuditEntry)
        .where(AuditEntry.workspace_id == workspace_id)
        .order_by(col(AuditEntry.number).desc())
        .limit(1)
    ).first()
    entry = AuditEntry(
        workspace_id=workspace_id,
        number=1 if last is None else last.number + 1,
        action=action,
        actor=actor,
        target=target,
        details=details or {},
        digest=b"",
        created_at=utc_now(),
    )
    entry.digest = _digest(b"" if last is None else last.digest, entry)
    session.add(entry)
    session.flush()


def audit_page(
    session: Session, workspace_id: int, page: int, limit: int
) -> tuple[list[AuditEntry], int]:
    """One page of entries, newest first, and their total number; `page` counts from 1."""
    query = select(AuditEntry).where(AuditEntry.workspace_id == workspace_id)
    return page_of(session, query.order_by(col(AuditEntry.number).desc()), page, limit)


def creator_of(session: Session, workspace_id: int) -> str | None:
    """The actor of a workspace's first entry, which created it."""
    query = select(AuditEntry.actor).where(AuditEntry.workspace_id == workspace_id)
    return session.exec(query.order_by(col(AuditEntry.number)).limit(1)).first()


def recent_details(session: Session, workspace_id: int, action: str, since: datetime) -> list[Any]:
    """The details of the workspace's entries of an action after `since`."""
    mine = (AuditEntry.workspace_id == workspace_id, AuditEntry.action == action)
    query = select(AuditEntry.details).where(*mine, col(AuditEntry.created_at) > since)
    return list(session.exec(query))


def audit_chain(session: Session, workspace_id: int) -> list[AuditEntry]:
    """All entries of a workspace, oldest first."""
    query = select(AuditEntry).where(AuditEntry.workspace_id == workspace_id)
    return list(session.exec(query.order_by(col(AuditEntry.number))))


def audited_workspaces(session: Session) -> list[int]:
    """The ids of all workspaces with entries, including erased ones."""
    return list(session.exec(select(AuditEntry.workspace_id).distinct()))


def first_break(chain: Iterable[AuditEntry]) -> int | None:
    """The number of the first entry that was changed, removed or inserted; None when valid. A
    removal of the last entries is only detected against a digest that is stored elsewhere."""
    digest = b""
    for number, entry in enumerate(chain, start=1):
        if entry.number != number or entry.digest != _digest(digest, entry):
            return number
        digest = entry.digest
    return None


def _digest(before: bytes, entry: AuditEntry) -> bytes:
    names = ("workspace_id", "number", "action", "actor", "target", "details")
    content = [*(getattr(entry, name) for name in names), entry.created_at.isoformat()]
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(before + plain.encode()).digest()
