"""Rows of stored files, whose bytes are in the store."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import BigInteger, and_, delete, except_, func, or_, union, update
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import lock_workspace
from db.database import UtcDateTime, change_rows, given_key, utc_now


class StoredFile(SQLModel, table=True):
    """A file of a workspace in the store, until it expires or its owner is deleted."""

    __tablename__ = "stored_file"

    id: str = Field(primary_key=True, max_length=40)
    workspace_id: int = Field(sa_type=BigInteger, index=True)  # no foreign key: deleted separately
    kind: str = Field(max_length=16)  # speech, sample, voice, answer, part, …
    media_type: str
    size: int = Field(sa_type=BigInteger)  # bytes
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class StoredBytes(SQLModel, table=True):
    """Sum of the sizes of a workspace's files, kept by triggers of `stored_file`."""

    __tablename__ = "stored_bytes"

    workspace_id: int = Field(sa_column=given_key())
    bytes: int = Field(sa_type=BigInteger)


def stored_bytes(session: Session, workspace_id: int) -> int:
    """Reads the bytes of a workspace's files, including expired ones until they are deleted."""
    kept = session.get(StoredBytes, workspace_id, populate_existing=True)
    return 0 if kept is None else kept.bytes


def wrong_stored_bytes(session: Session) -> list[int]:
    """Finds workspaces whose sum differs from their files. A sum of 0 may have no row."""
    size = func.sum(StoredFile.size)
    files = select(StoredFile.workspace_id, size).group_by(col(StoredFile.workspace_id))
    files = files.having(size != 0)
    sums = select(StoredBytes.workspace_id, StoredBytes.bytes).where(StoredBytes.bytes != 0)
    differences = union(
        *(select(except_(*pair).subquery()) for pair in ((files, sums), (sums, files)))
    )
    return sorted({workspace_id for workspace_id, _ in session.execute(differences)})


def keep_file(
    session: Session, workspace_id: int, file_id: str, expires_at: datetime | None
) -> bool:
    """Sets how long the file is kept; False when it or its workspace was deleted meanwhile."""
    # An erasure of the workspace waits until the file is in the set of files to be erased.
    if lock_workspace(session, workspace_id, shared=True) is None:
        return False
    kept = update(StoredFile).where(col(StoredFile.id) == file_id).values(expires_at=expires_at)
    return change_rows(session, kept) > 0


def expire_files(session: Session, workspace_id: int, now: datetime) -> None:
    """Makes all files of the workspace due for deletion."""
    ours = col(StoredFile.workspace_id) == workspace_id
    change_rows(session, update(StoredFile).where(ours).values(expires_at=now))


def expire_these_files(session: Session, file_ids: Collection[str], now: datetime) -> None:
    """Makes these files due for deletion."""
    these = col(StoredFile.id).in_(file_ids)
    change_rows(session, update(StoredFile).where(these).values(expires_at=now))


def expired_files(
    session: Session, now: datetime, limit: int, after: StoredFile | None = None
) -> list[StoredFile]:
    """Files that are due for deletion, the oldest first, from `after` on if given."""
    expires_at, file_id = col(StoredFile.expires_at), col(StoredFile.id)
    query = select(StoredFile).where(expires_at <= now)
    if after is not None:
        later = and_(expires_at == after.expires_at, file_id > after.id)
        query = query.where(or_(expires_at > after.expires_at, later))
    return list(session.exec(query.order_by(expires_at, file_id).limit(limit)))


def delete_file(session: Session, file_id: str) -> None:
    change_rows(session, delete(StoredFile).where(col(StoredFile.id) == file_id))
