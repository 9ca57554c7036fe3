"""Stored responses to requests with an Idempotency-Key, and leases of running requests."""

from datetime import datetime

from sqlalchemy import JSON, Column, ColumnElement, LargeBinary, delete, or_, update
from sqlmodel import Field, Session, SQLModel, col

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, utc_now


class IdempotentAnswer(SQLModel, table=True):
    """The response to a request with an Idempotency-Key, or the lease while it runs."""

    __tablename__ = "idempotent_answer"

    workspace_id: int = Field(sa_column=workspace_reference(primary_key=True))
    path: str = Field(primary_key=True)
    key: str = Field(primary_key=True, max_length=255)
    body_digest: bytes | None = Field(default=None, sa_type=LargeBinary)  # digest of the request
    lease: str | None = None  # lease of the running request
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    status: int | None = None
    headers: list[list[str]] = Field(sa_column=Column(JSON, nullable=False))
    body: bytes | None = Field(default=None, sa_type=LargeBinary)  # encrypted
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


def claim_answer(
    session: Session,
    *,
    workspace_id: int,
    path: str,
    key: str,
    lease: str,
    now: datetime,
    lease_until: datetime,
    expires_at: datetime,
) -> IdempotentAnswer:
    """Returns a row with `lease` when the caller may run the request; else the existing row. If a
    runner dies, another can take over after `lease_until`, with the same `created_at` and
    `body_digest`. Raises sqlalchemy.exc.IntegrityError when a concurrent call was first."""
    row = session.get(IdempotentAnswer, (workspace_id, path, key), with_for_update=True)
    if row is not None and row.expires_at > now:
        if row.status is not None or (row.lease_until is not None and row.lease_until > now):
            return row
    if row is None:
        row = IdempotentAnswer(
            workspace_id=workspace_id,
            path=path,
            key=key,
            headers=[],
            created_at=now,
            expires_at=expires_at,
        )
    if row.expires_at <= now:
        row.created_at = now
        row.expires_at = expires_at
        row.body_digest = None
    row.lease = lease
    row.lease_until = lease_until
    row.status = None
    row.body = None
    row.headers = []
    session.add(row)
    session.flush()
    return row


def renew_answer(session: Session, claimed: IdempotentAnswer, lease_until: datetime) -> bool:
    """Extends the lease; False when another process has taken it over."""
    running = update(IdempotentAnswer).where(*_running(claimed))
    return change_rows(session, running.values(lease_until=lease_until)) > 0


def bind_answer(session: Session, claimed: IdempotentAnswer, digest: bytes) -> bool:
    """Stores the digest of the request's body. False when an earlier run had another body: then the
    lease is given back, and only a request with the first body can continue."""
    running = update(IdempotentAnswer).where(*_running(claimed))
    stored = col(IdempotentAnswer.body_digest)
    same = running.where(or_(stored.is_(None), stored == digest))
    if change_rows(session, same.values(body_digest=digest)):
        return True
    return not change_rows(session, running.values(lease=None, lease_until=None))


def finish_answer(
    session: Session,
    claimed: IdempotentAnswer,
    status: int,
    headers: list[list[str]],
    body: bytes | None,
) -> bool:
    """Stores the response; False when another process has taken the request over."""
    running = update(IdempotentAnswer).where(*_running(claimed))
    answer = {"status": status, "headers": headers, "body": body}
    return change_rows(session, running.values(lease=None, lease_until=None, **answer)) > 0


def release_answer(session: Session, claimed: IdempotentAnswer) -> None:
    """Releases the key of a failed request, so that a retry runs again."""
    change_rows(session, delete(IdempotentAnswer).where(*_running(claimed)))


def _running(claimed: IdempotentAnswer) -> tuple[ColumnElement[bool], ...]:
    """The condition that the row's request still runs under the lease of `claimed`."""
    row = IdempotentAnswer
    return (
        col(row.workspace_id) == claimed.workspace_id,
        col(row.path) == claimed.path,
        col(row.key) == claimed.key,
        col(row.lease) == claimed.lease,
    )


def note_once(
    session: Session, workspace_id: int, path: str, key: str, now: datetime, expires_at: datetime
) -> bool:
    """Records a message until `expires_at`; False if it is recorded already. The caller holds the
    lock of the workspace."""
    row = session.get(IdempotentAnswer, (workspace_id, path, key))
    if row is not None and row.expires_at > now:
        return False
    noted = IdempotentAnswer(
        workspace_id=workspace_id, path=path, key=key, headers=[], status=204, expires_at=expires_at
    )
    session.merge(noted)
    return True
