"""Invites of the operator, each for one sign-up."""

from datetime import datetime

from sqlalchemy import BigInteger, Column, LargeBinary
from sqlmodel import Field, Session, SQLModel, col, delete

from db.database import UtcDateTime, change_rows, utc_now


class Invite(SQLModel, table=True):
    """An invite that is not used yet; only the HMAC of its code is stored."""

    digest: bytes = Field(sa_column=Column(LargeBinary, primary_key=True))
    email: str | None = Field(default=None, max_length=254)  # only this address may use it
    credit: int | None = Field(default=None, sa_type=BigInteger)  # micro-USD; None: signup_credit
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)


def add_only(session: Session, invite: Invite) -> None:
    """Adds an invite for an address, and deletes earlier ones for it."""
    change_rows(session, delete(Invite).where(col(Invite.email) == invite.email))
    session.add(invite)


def redeem(session: Session, digest: bytes, email: str, now: datetime) -> Invite | None:
    """Deletes the invite and returns it; None when that address cannot sign up with it."""
    invite = session.get(Invite, digest, with_for_update=True)
    if invite is None or invite.expires_at <= now or invite.email not in (None, email):
        return None
    session.delete(invite)
    return invite
