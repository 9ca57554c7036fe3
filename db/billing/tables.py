"""Tables of the ledger: balances, entries, sums of days, and holds. Money is integer micro-USD. The
ledger is kept after its workspace is deleted, so it has no foreign key to it; a workspace's id is
random and does not identify its owner."""

from datetime import date, datetime

from sqlalchemy import BigInteger, CheckConstraint, Column, Date, Index, UniqueConstraint
from sqlmodel import Field, SQLModel

from db.database import AUTO_INCREMENT, UtcDateTime, given_key, utc_now


def _key_id() -> Column[int]:
    return Column(BigInteger, nullable=False, server_default="0")


class Account(SQLModel, table=True):
    """The balance of a workspace; its credit is `balance` - `held`."""

    __table_args__ = (
        CheckConstraint("balance >= 0", name="balance_not_negative"),
        CheckConstraint("held >= 0", name="held_not_negative"),
        CheckConstraint("held <= balance", name="held_within_balance"),
    )

    workspace_id: int = Field(sa_column=given_key())
    balance: int = Field(sa_type=BigInteger)
    held: int = Field(default=0, sa_type=BigInteger)


class LedgerEntry(SQLModel, table=True):
    """One change of an account; append-only, which a trigger enforces. The sum of `amount` is the
    balance, and the sum of `held` the credit on hold."""

    __tablename__ = "ledger_entry"
    __table_args__ = (
        UniqueConstraint("workspace_id", "operation", "kind"),
        Index("ix_ledger_entry_workspace_id_created_at", "workspace_id", "created_at"),
    )

    id: int | None = Field(default=None, sa_column=Column(AUTO_INCREMENT, primary_key=True))
    workspace_id: int = Field(sa_type=BigInteger)
    operation: str = Field(max_length=64)  # shared by a hold and its capture, release or refund
    kind: str = Field(max_length=16)  # grant, hold, capture, release, refund, adjust
    amount: int = Field(default=0, sa_type=BigInteger)  # change of the balance
    held: int = Field(default=0, sa_type=BigInteger)  # change of the credit on hold
    balance_after: int = Field(sa_type=BigInteger)
    service: str = Field(default="", max_length=16)  # one of `Service`; empty for grants
    units: int = Field(default=0, sa_type=BigInteger)  # characters, milliseconds, tokens, voices
    key_id: int = Field(default=0, sa_column=_key_id())  # API key that pays; 0 for a token
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class LedgerDay(SQLModel, table=True):
    """Sums of a workspace's entries of one day, service and API key, kept by a trigger."""

    __tablename__ = "ledger_day"

    workspace_id: int = Field(sa_column=given_key())
    day: date = Field(sa_column=Column(Date, primary_key=True))  # in UTC
    service: str = Field(primary_key=True, max_length=16)
    key_id: int = Field(sa_column=given_key())
    amount: int = Field(sa_type=BigInteger)
    held: int = Field(sa_type=BigInteger)
    units: int = Field(sa_type=BigInteger)
    captures: int = Field(sa_type=BigInteger)  # number of entries
    refunds: int = Field(sa_type=BigInteger)


class CreditHold(SQLModel, table=True):
    """An open hold; the row is deleted when it is captured or released, which happens once."""

    __tablename__ = "hold"

    operation: str = Field(primary_key=True, max_length=64)
    workspace_id: int = Field(sa_type=BigInteger)
    amount: int = Field(sa_type=BigInteger)
    service: str = Field(max_length=16)
    key_id: int = Field(default=0, sa_column=_key_id())
    expires_at: datetime = Field(sa_type=UtcDateTime, index=True)
