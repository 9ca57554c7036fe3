"""Login sessions of users, one per token. Deleting the row ends the token."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Index
from sqlmodel import Field, Session, SQLModel, col, delete, select, update

from db.accounts import User, Workspace
from db.database import UtcDateTime, change_rows, utc_now

MAX_SESSIONS = 100  # rows of one user; a login deletes those that expire first
THIS_MACHINE = "this machine"  # address of a session by the link of `make run`


class LoginSession(SQLModel, table=True):
    """A sign-up or login, and its origin. The row is kept for a while after the session has ended,
    so that its address stays known."""

    __tablename__ = "login_session"
    __table_args__ = (Index("ix_login_session_user_id_address", "user_id", "address"),)

    id: UUID = Field(primary_key=True)  # the `jti` of its token
    user_id: int = Field(foreign_key="users.id", ondelete="CASCADE", sa_type=BigInteger)
    address: str = Field(default="", max_length=64)  # client's address; for IPv6 its /64 network
    user_agent: str = Field(default="", max_length=200)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)  # or when it was logged out


def begin_session(session: Session, new: LoginSession) -> None:
    """Adds a session of a user whose row is locked or new, and deletes those over MAX_SESSIONS."""
    session.add(new)
    session.flush()
    query = select(LoginSession.id).where(LoginSession.user_id == new.user_id)
    newest_first = query.order_by(col(LoginSession.expires_at).desc(), col(LoginSession.id))
    over = newest_first.offset(MAX_SESSIONS)
    change_rows(session, delete(LoginSession).where(col(LoginSession.id).in_(over)))


def owner_of_session(
    session: Session, user_id: int, session_id: UUID
) -> tuple[Workspace, LoginSession] | None:
    """Finds the user's workspace and session; None if the user has no such session."""
    query = select(Workspace, LoginSession).where(
        LoginSession.id == session_id,
        LoginSession.user_id == user_id,
        LoginSession.user_id == Workspace.owner_id,
    )
    return session.exec(query).first()


def sessions_of(session: Session, user_id: int, now: datetime) -> list[LoginSession]:
    """Lists the sessions that have not ended, newest first."""
    mine = select(LoginSession).where(
        LoginSession.user_id == user_id, col(LoginSession.expires_at) > now
    )
    newest_first = mine.order_by(col(LoginSession.created_at).desc(), col(LoginSession.id))
    return list(session.exec(newest_first))


def knows_address(session: Session, email: str, address: str) -> bool:
    """Whether a kept session of the account came from the address."""
    query = select(LoginSession.id).join(User, col(User.id) == LoginSession.user_id)
    matching = query.where(User.email == email, LoginSession.address == address)
    return session.exec(matching.limit(1)).first() is not None


def touch_session(session: Session, session_id: UUID, used_at: datetime) -> None:
    """Records the time of a session's last use."""
    mine = update(LoginSession).where(col(LoginSession.id) == session_id)
    change_rows(session, mine.values(last_used_at=used_at))


def log_out(session: Session, user_id: int, session_id: UUID | None, now: datetime) -> None:
    """Ends a session at its user's request; its address stays known."""
    mine = update(LoginSession).where(*_live(user_id, session_id, now))
    change_rows(session, mine.values(expires_at=now))


def end_session(session: Session, user_id: int, session_id: UUID, now: datetime) -> bool:
    """Deletes a live session, with its address; False when the user has none of that id."""
    mine = delete(LoginSession).where(*_live(user_id, session_id, now))
    return change_rows(session, mine) > 0


def end_other_sessions(session: Session, user_id: int, kept: UUID | None) -> bool:
    """Deletes all sessions but one; False if there are no others."""
    others = delete(LoginSession).where(
        col(LoginSession.user_id) == user_id, col(LoginSession.id).is_distinct_from(kept)
    )
    return change_rows(session, others) > 0


def _live(user_id: int, session_id: UUID | None, now: datetime) -> tuple[ColumnElement[bool], ...]:
    """Builds the condition that a session is the user's and has not ended."""
    row = LoginSession
    return col(row.user_id) == user_id, col(row.id) == session_id, col(row.expires_at) > now
