"""What was answered to requests with an Idempotency-Key, and which of them still run."""

from datetime import datetime

from sqlalchemy import JSON, Column, ColumnElement, LargeBinary, delete, update
from sqlmodel import Field, Session, SQLModel, col

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, utc_now


class IdempotentAnswer(SQLModel, table=True):
    """What was answered to a request with an Idempotency-Key; or that it still runs."""

    __tablename__ = "idempotent_answer"

    workspace_id: int = Field(sa_column=workspace_reference(primary_key=True))
    path: str = Field(primary_key=True)
    key: str = Field(primary_key=True, max_length=255)
    body_digest: bytes | None = Field(default=None, sa_type=LargeBinary)  # once it was read
    lease: str | None = None  # of the request that runs
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    status: int | None = None
    headers: list[list[str]] = Field(sa_column=Column(JSON, nullable=False))
    body: bytes | None = Field(default=None, sa_type=LargeBinary)  # encrypted
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


def claim_answer(
    session: Session,
    workspace_id: int,
    path: str,
    key: str,
    lease: str,
    now: datetime,
    lease_until: datetime,
    expires_at: datetime,
) -> IdempotentAnswer:
    """With `lease` when the caller may run the request; else the answer, or the one that runs.

    Who runs it and dies is followed by the next after `lease_until`, with the same `created_at`.
    Raises sqlalchemy.exc.IntegrityError when another was first in the same moment.
    """
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
        row.created_at, row.expires_at = now, expires_at
    row.lease, row.lease_until = lease, lease_until
    row.status, row.body, row.body_digest, row.headers = None, None, None, []
    session.add(row)
    session.flush()
    return row


def renew_answer(session: Session, claimed: IdempotentAnswer, lease_until: datetime) -> bool:
    """False when another took it over."""
    running = update(IdempotentAnswer).where(*_running(claimed))
    return change_rows(session, running.values(lease_until=lease_until)) > 0


def finish_answer(
    session: Session,
    claimed: IdempotentAnswer,
    digest: bytes,
    status: int,
    headers: list[list[str]],
    body: bytes | None,
) -> bool:
    """Keeps the answer; False when another took the request over."""
    running = update(IdempotentAnswer).where(*_running(claimed))
    answer = {"body_digest": digest, "status": status, "headers": headers, "body": body}
    return change_rows(session, running.values(lease=None, lease_until=None, **answer)) > 0


def release_answer(session: Session, claimed: IdempotentAnswer) -> None:
    """The request failed: the next with its key runs again."""
    change_rows(session, delete(IdempotentAnswer).where(*_running(claimed)))


def _running(claimed: IdempotentAnswer) -> tuple[ColumnElement[bool], ...]:
    """The row while its request runs under the lease that it was claimed with."""
    row = IdempotentAnswer
    return (
        col(row.workspace_id) == claimed.workspace_id,
        col(row.path) == claimed.path,
        col(row.key) == claimed.key,
        col(row.lease) == claimed.lease,
    )
