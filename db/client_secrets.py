"""Client secrets: short-lived credentials for sockets of browsers, made with a key or a token."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Column, Index, LargeBinary
from sqlmodel import Field, Session, SQLModel, col, delete, func, select

from db.accounts import ApiKey, Workspace, workspace_reference
from db.database import UtcDateTime, change_rows, utc_now


class ClientSecret(SQLModel, table=True):
    """A secret with the session that it opens; only the HMAC of the secret is stored. It was
    created by the API key `key_id` or the login session `session_id`, and ends with it."""

    __tablename__ = "client_secret"
    __table_args__ = (
        Index("ix_client_secret_workspace_id_expires_at", "workspace_id", "expires_at"),
    )

    digest: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    workspace_id: int = Field(sa_column=workspace_reference())
    key_id: int | None = Field(
        default=None, foreign_key="api_key.id", ondelete="CASCADE", index=True, sa_type=BigInteger
    )
    session_id: UUID | None = Field(
        default=None, foreign_key="login_session.id", ondelete="CASCADE", index=True
    )
    scopes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    configuration: bytes = Field(sa_type=LargeBinary)  # JSON of the session, encrypted
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


def live_secrets(session: Session, workspace_id: int, now: datetime) -> int:
    """Counts a workspace's secrets that have not expired."""
    query = select(func.count()).where(
        col(ClientSecret.workspace_id) == workspace_id, col(ClientSecret.expires_at) > now
    )
    return session.exec(query).one()


def secret_by_digest(
    session: Session, digest: bytes
) -> tuple[ClientSecret, Workspace, bytes | None] | None:
    """Finds the secret with that digest, its workspace, and the digest of the key that made it."""
    query = (
        select(ClientSecret, Workspace, ApiKey.digest)
        .join(Workspace, col(Workspace.id) == ClientSecret.workspace_id)
        .outerjoin(ApiKey, col(ApiKey.id) == ClientSecret.key_id)
        .where(ClientSecret.digest == digest)
    )
    return session.exec(query).first()


def secret_digests(session: Session) -> frozenset[bytes]:
    """Reads the digests of all secrets, including those expired since the last housekeeping."""
    return frozenset(session.exec(select(ClientSecret.digest)))


def delete_secret(session: Session, digest: bytes) -> bool:
    """Deletes a secret; returns False if it was gone."""
    query = delete(ClientSecret).where(col(ClientSecret.digest) == digest)
    return change_rows(session, query) == 1


def delete_secrets_of(session: Session, key_id: int) -> None:
    """Deletes the secrets that a key made."""
    change_rows(session, delete(ClientSecret).where(col(ClientSecret.key_id) == key_id))
