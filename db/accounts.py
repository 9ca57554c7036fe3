"""Users, their workspaces and the keys of these."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, or_
from sqlmodel import Session, col, delete, select, update

from db.columns import utc_now
from db.tables import ApiKey, User, Workspace


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """A key and what belongs to it."""

    key: ApiKey
    workspace: Workspace


def add_user(session: Session, user: User, workspace: Workspace) -> None:
    """Raises sqlalchemy.exc.IntegrityError when the e-mail is taken."""
    session.add(user)
    session.flush()
    session.add(workspace)


def user_by_email(session: Session, email: str) -> tuple[User, Workspace] | None:
    query = select(User, Workspace).where(User.email == email, Workspace.owner_id == User.id)
    return session.exec(query).first()


def user_by_id(session: Session, user_id: int) -> tuple[User, Workspace] | None:
    query = select(User, Workspace).where(User.id == user_id, Workspace.owner_id == User.id)
    return session.exec(query).first()


def update_profile(
    session: Session, user_id: int, name: str | None, company: str | None
) -> tuple[User, list[str]] | None:
    """Changes what is not None; the user, and the names of the fields that are other now."""
    user = session.get(User, user_id, with_for_update=True)
    if user is None:
        return None
    changed = _change(user, name=name, company=company)
    user.updated_at = utc_now()
    session.add(user)
    return user, changed


def update_workspace(
    session: Session, workspace_id: int, name: str | None, retention: str | None
) -> tuple[Workspace, list[str]] | None:
    """Changes what is not None; the workspace, and the names of the fields that are other now."""
    workspace = session.get(Workspace, workspace_id, with_for_update=True)
    if workspace is None:
        return None
    changed = _change(workspace, name=name, retention=retention)
    session.add(workspace)
    return workspace, changed


def _change(row: User | Workspace, **values: str | None) -> list[str]:
    changed = [
        field
        for field, value in values.items()
        if value is not None and getattr(row, field) != value
    ]
    for field in changed:
        setattr(row, field, values[field])
    return changed


def read_workspace(session: Session, workspace_id: int) -> Workspace | None:
    return session.get(Workspace, workspace_id)


def lock_workspace(session: Session, workspace_id: int) -> None:
    """Until the end of the transaction; rows that refer to the workspace may still be added."""
    session.get(Workspace, workspace_id, with_for_update={"key_share": True})


def delete_user(session: Session, user_id: int) -> bool:
    """With the workspace and all that refers to it; False when there is no such user."""
    deleted = session.exec(delete(User).where(col(User.id) == user_id))
    return bool(deleted.rowcount)


def set_password_hash(session: Session, user_id: int, password_hash: str) -> None:
    session.exec(update(User).where(col(User.id) == user_id).values(password_hash=password_hash))


def find_workspace(
    session: Session, email: str | None = None, workspace_id: int | None = None
) -> Workspace | None:
    """By its owner's e-mail address or its id; without either the first that was made."""
    query = select(Workspace).order_by(col(Workspace.created_at), col(Workspace.id))
    if workspace_id is not None:
        query = query.where(Workspace.id == workspace_id)
    if email is not None:
        query = query.join(User, col(User.id) == Workspace.owner_id).where(
            User.email == email.strip().lower()
        )
    return session.exec(query.limit(1)).first()


def any_workspace(session: Session) -> bool:
    return session.exec(select(Workspace.id).limit(1)).first() is not None


def add_key(session: Session, key: ApiKey) -> None:
    session.add(key)


def keys_of(session: Session, workspace_id: int) -> list[ApiKey]:
    """Those that were not revoked, newest first."""
    query = (
        select(ApiKey)
        .where(ApiKey.workspace_id == workspace_id, col(ApiKey.revoked_at).is_(None))
        .order_by(col(ApiKey.created_at).desc(), col(ApiKey.id))
    )
    return list(session.exec(query).all())


def count_keys(session: Session, workspace_id: int) -> int:
    query = select(func.count()).where(
        ApiKey.workspace_id == workspace_id, col(ApiKey.revoked_at).is_(None)
    )
    return session.exec(query).one()


def revoke_key(session: Session, workspace_id: int, key_id: int, now: datetime) -> bool:
    """Takes its name away, too; False when the workspace has no such key any more."""
    revoked = session.exec(
        update(ApiKey)
        .where(
            col(ApiKey.id) == key_id,
            col(ApiKey.workspace_id) == workspace_id,
            col(ApiKey.revoked_at).is_(None),
        )
        .values(revoked_at=now, name="")
    )
    return bool(revoked.rowcount)


def note_refusal(session: Session, key_id: int, now: datetime, since: datetime) -> bool:
    """Whether this is the first refusal of the key after `since` that anybody notes."""
    noted = session.exec(
        update(ApiKey)
        .where(
            col(ApiKey.id) == key_id,
            or_(col(ApiKey.refused_at).is_(None), col(ApiKey.refused_at) <= since),
        )
        .values(refused_at=now)
    )
    return bool(noted.rowcount)


def key_by_digest(session: Session, digest: bytes) -> KeyOwner | None:
    """Of a revoked key, too, for as long as its row is kept."""
    query = select(ApiKey, Workspace).where(
        ApiKey.digest == digest, Workspace.id == ApiKey.workspace_id
    )
    row = session.exec(query).first()
    return None if row is None else KeyOwner(*row)


def touch_key(session: Session, key_id: int, used_at: datetime) -> None:
    """Notes that the key was used."""
    session.exec(update(ApiKey).where(col(ApiKey.id) == key_id).values(last_used_at=used_at))
