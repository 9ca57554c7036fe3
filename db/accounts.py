"""Users, their workspaces (the tenants) and API keys."""

from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import JSON, BigInteger, Column, ColumnElement, ForeignKey, String, cast, or_
from sqlmodel import Field, Session, SQLModel, col, delete, select, update

from db.database import UtcDateTime, change_rows, given_key, random_id, utc_now

MAX_REVOKED = 1000  # revoked rows kept per workspace, since a client may create keys endlessly


class User(SQLModel, table=True):
    """A person with an e-mail address and a password."""

    __tablename__ = "users"  # `user` is a reserved word of PostgreSQL

    id: int = Field(default_factory=random_id, sa_column=given_key())
    email: str = Field(unique=True, max_length=254)  # normalised
    password_hash: str  # argon2id, in its own encoding
    name: str = ""
    company: str = ""
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    updated_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    # Unused; kept for gateways of the previous release, which read it during an upgrade.
    tokens_since: datetime | None = Field(default=None, sa_type=UtcDateTime)


class Workspace(SQLModel, table=True):
    """The owner (tenant) of keys, voices, chats, usage, webhooks and balance; one per user."""

    id: int = Field(default_factory=random_id, sa_column=given_key())
    owner_id: int = Field(
        foreign_key="users.id", ondelete="CASCADE", unique=True, sa_type=BigInteger
    )
    name: str
    plan: str  # id of a plan in configs/plans.yaml
    retention: str = "standard"  # or zero: no texts and no audio are stored
    # Days for which the history keeps speech; 0 keeps none.
    speech_history_days: int = Field(default=0, sa_column_kwargs={"server_default": "0"})
    # Speech before this time is never listed, even if more days are set later; None: no change yet.
    history_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    # Times at which work on one of its custom voices, and on one of its jobs, last began.
    voice_turn_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    job_turn_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


def speech_since(workspace: Workspace, now: datetime) -> datetime:
    """Return the time after which speech is in the history of the workspace."""
    since = now - timedelta(days=workspace.speech_history_days)
    return max(since, workspace.history_since or since)


def workspace_reference(**options: Any) -> Column[int]:
    """A foreign key to the workspace that a row belongs to; the row is deleted with it."""
    reference = ForeignKey("workspace.id", ondelete="CASCADE")
    return Column(BigInteger, reference, nullable=False, **options)


class ApiKey(SQLModel, table=True):
    """An API key of a workspace; only the HMAC of the key is stored."""

    __tablename__ = "api_key"

    id: int = Field(default_factory=random_id, sa_column=given_key())
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    name: str
    digest: bytes = Field(unique=True)  # HMAC-SHA256 of the key under the server's pepper
    prefix: str  # the first characters of the key, to identify it
    scopes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # A deleted key is kept for a while without its name, so that its use can be audited.
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    refused_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # last audited


Row = TypeVar("Row", User, Workspace)


def add_user(session: Session, user: User, workspace: Workspace) -> None:
    """Adds a user with a workspace. Raises IntegrityError when the e-mail address is taken."""
    session.add(user)
    session.flush()
    session.add(workspace)


def find_user(
    session: Session, condition: ColumnElement[bool] | bool
) -> tuple[User, Workspace] | None:
    """Finds the user that matches a condition on User's columns, and the workspace."""
    query = select(User, Workspace).where(condition, Workspace.owner_id == User.id)
    return session.exec(query).first()


def list_users(
    session: Session, after: int = 0, limit: int | None = None, text: str = ""
) -> list[tuple[User, Workspace]]:
    """Lists users by workspace id, from `after` on, if `text` is in their address, name or id."""
    query = select(User, Workspace).where(Workspace.owner_id == User.id, col(Workspace.id) > after)
    names = (col(User.email), col(Workspace.name), cast(col(Workspace.id), String))
    matches = or_(*(name.icontains(text, autoescape=True) for name in names))
    return list(session.exec(query.where(matches).order_by(col(Workspace.id)).limit(limit)))


def change_row(
    session: Session, model: type[Row], row_id: int, **values: str | int | None
) -> tuple[Row, list[str]] | None:
    """Sets the values that are not None; returns the row and the names of changed fields."""
    row = session.get(model, row_id, with_for_update=True)
    if row is None:
        return None
    if isinstance(row, Workspace):  # speech that its history has dropped does not return
        row.history_since = speech_since(row, utc_now())
    changed = [
        field
        for field, value in values.items()
        if value is not None and getattr(row, field) != value
    ]
    for field in changed:
        setattr(row, field, values[field])
    if isinstance(row, User):
        row.updated_at = utc_now()
    session.add(row)
    return row, changed


def lock_workspace(
    session: Session, workspace_id: int, *, shared: bool = False
) -> Workspace | None:
    """Locks the row until the end of the transaction; settlements, which only refer to the row, can
    still run. A `shared` lock prevents its erasure."""
    lock = {"read": shared, "key_share": True}
    return session.get(Workspace, workspace_id, with_for_update=lock)


def delete_user(session: Session, user_id: int) -> bool:
    """Deletes the user, the workspace and all that refers to it; False without such a user."""
    return change_rows(session, delete(User).where(col(User.id) == user_id)) > 0


def find_workspace(
    session: Session, email: str | None = None, workspace_id: int | None = None
) -> Workspace | None:
    """Finds a workspace by its owner's e-mail address or its id; else the oldest one."""
    query = select(Workspace).order_by(col(Workspace.created_at), col(Workspace.id))
    if workspace_id is not None:
        query = query.where(Workspace.id == workspace_id)
    if email is not None:
        query = query.join(User, col(User.id) == Workspace.owner_id).where(
            User.email == email.strip().lower()
        )
    return session.exec(query.limit(1)).first()


def keys_of(session: Session, workspace_id: int) -> list[ApiKey]:
    """Lists the keys that are not revoked, newest first."""
    query = (
        select(ApiKey)
        .where(ApiKey.workspace_id == workspace_id, col(ApiKey.revoked_at).is_(None))
        .order_by(col(ApiKey.created_at).desc(), col(ApiKey.id))
    )
    return list(session.exec(query).all())


def revoke_key(session: Session, workspace_id: int, key_id: int, now: datetime) -> bool:
    """Revokes a key and deletes its name; False when the workspace has no such valid key. Only the
    last MAX_REVOKED revoked keys are kept."""
    key = update(ApiKey).where(
        col(ApiKey.id) == key_id,
        col(ApiKey.workspace_id) == workspace_id,
        col(ApiKey.revoked_at).is_(None),
    )
    if not change_rows(session, key.values(revoked_at=now, name="")):
        return False
    revoked = select(ApiKey.id).where(
        ApiKey.workspace_id == workspace_id, col(ApiKey.revoked_at).is_not(None)
    )
    newest_first = revoked.order_by(col(ApiKey.revoked_at).desc(), col(ApiKey.id))
    over = newest_first.offset(MAX_REVOKED)
    change_rows(session, delete(ApiKey).where(col(ApiKey.id).in_(over)))
    return True


def note_refusal(session: Session, key_id: int, now: datetime, since: datetime) -> bool:
    """Records a refusal of the key; False if one was recorded after `since`."""
    key = update(ApiKey).where(
        col(ApiKey.id) == key_id,
        or_(col(ApiKey.refused_at).is_(None), col(ApiKey.refused_at) <= since),
    )
    return change_rows(session, key.values(refused_at=now)) > 0


def key_by_digest(session: Session, digest: bytes) -> tuple[ApiKey, Workspace] | None:
    """Finds the key with that digest, also a revoked one while its row is kept."""
    query = select(ApiKey, Workspace).where(
        ApiKey.digest == digest, Workspace.id == ApiKey.workspace_id
    )
    return session.exec(query).first()


def key_digests(session: Session) -> frozenset[bytes]:
    """Reads the digests of all keys, including revoked ones."""
    return frozenset(session.exec(select(ApiKey.digest)))


def touch_key(session: Session, key_id: int, used_at: datetime) -> None:
    """Records the time of a key's last use."""
    key = update(ApiKey).where(col(ApiKey.id) == key_id)
    change_rows(session, key.values(last_used_at=used_at))
