"""What was answered to requests with an Idempotency-Key, and which of them still run."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import JSON, Column, ColumnElement, LargeBinary, delete, select, tuple_, update
from sqlmodel import Field, Session, SQLModel, col

from db.accounts import workspace_reference
from db.database import UtcDateTime, utc_now

DELETED_AT_ONCE = 500


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
    body: bytes | None = Field(default=None, sa_type=LargeBinary)  # sealed
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


@dataclass(frozen=True, slots=True)
class AnswerName:
    """Which request is meant."""

    workspace_id: int
    path: str
    key: str  # the client's

    def _where(self) -> tuple[ColumnElement[bool], ...]:
        row = IdempotentAnswer
        return (
            col(row.workspace_id) == self.workspace_id,
            col(row.path) == self.path,
            col(row.key) == self.key,
        )

    def where_leased(self, lease: str) -> tuple[ColumnElement[bool], ...]:
        """The row while that request runs."""
        return (*self._where(), col(IdempotentAnswer.lease) == lease)


def claim_answer(
    session: Session,
    name: AnswerName,
    lease: str,
    now: datetime,
    lease_until: datetime,
    expires_at: datetime,
) -> IdempotentAnswer:
    """With `lease` when the caller may run the request; else the answer, or the one that runs.

    Who runs it and dies is followed by the next after `lease_until`, with the same `created_at`.
    Raises sqlalchemy.exc.IntegrityError when another was first in the same moment.
    """
    primary_key = (name.workspace_id, name.path, name.key)
    row = session.get(IdempotentAnswer, primary_key, with_for_update=True)
    if row is not None and row.expires_at > now:
        if row.status is not None or (row.lease_until is not None and row.lease_until > now):
            return row
    if row is None:
        row = IdempotentAnswer(
            workspace_id=name.workspace_id,
            path=name.path,
            key=name.key,
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


def renew_answer(session: Session, name: AnswerName, lease: str, lease_until: datetime) -> bool:
    """False when another took it over."""
    renewed = session.connection().execute(
        update(IdempotentAnswer).where(*name.where_leased(lease)).values(lease_until=lease_until)
    )
    return renewed.rowcount > 0


def finish_answer(
    session: Session,
    name: AnswerName,
    lease: str,
    digest: bytes,
    status: int,
    headers: list[list[str]],
    body: bytes | None,
) -> bool:
    """Keeps the answer; False when another took the request over."""
    finished = session.connection().execute(
        update(IdempotentAnswer)
        .where(*name.where_leased(lease))
        .values(
            lease=None,
            lease_until=None,
            body_digest=digest,
            status=status,
            headers=headers,
            body=body,
        )
    )
    return finished.rowcount > 0


def release_answer(session: Session, name: AnswerName, lease: str) -> None:
    """The request failed: the next with its key runs again."""
    session.connection().execute(delete(IdempotentAnswer).where(*name.where_leased(lease)))


def delete_expired_answers(session: Session, now: datetime) -> int:
    """Some at once; how many were deleted."""
    row = IdempotentAnswer
    name = tuple_(col(row.workspace_id), col(row.path), col(row.key))
    expired = (
        select(col(row.workspace_id), col(row.path), col(row.key))
        .where(col(row.expires_at) <= now)
        .limit(DELETED_AT_ONCE)
    )
    deleted = session.connection().execute(delete(row).where(name.in_(expired)))
    return deleted.rowcount
