"""The tables of accounts."""

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Column, ForeignKey
from sqlmodel import Field, SQLModel

from db.columns import UtcDateTime, random_id, utc_now

metadata = SQLModel.metadata


class User(SQLModel, table=True):
    """A person with an e-mail address and a password."""

    __tablename__ = "users"  # `user` is a reserved word of PostgreSQL

    id: int = Field(
        default_factory=random_id,
        sa_column=Column(BigInteger, primary_key=True, autoincrement=False),
    )
    email: str = Field(unique=True, max_length=254)  # normalised
    password_hash: str  # argon2id, in its own encoding
    name: str = ""
    company: str = ""
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    updated_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class Workspace(SQLModel, table=True):
    """What owns keys, voices, chats, usage, webhooks and balance; every user has one."""

    id: int = Field(
        default_factory=random_id,
        sa_column=Column(BigInteger, primary_key=True, autoincrement=False),
    )
    owner_id: int = Field(
        sa_column=Column(
            BigInteger, ForeignKey("users.id", ondelete="CASCADE"), nullable=False, unique=True
        )
    )
    name: str
    plan: str  # id of a plan in configs/plans.yaml
    retention: str = "standard"  # or zero: nothing of what is said or heard is kept
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    voice_turn_at: datetime | None = Field(  # when a custom voice of its was last begun
        default=None, sa_type=UtcDateTime
    )


class ApiKey(SQLModel, table=True):
    """A key of a workspace; the key itself is not here, only its HMAC."""

    __tablename__ = "api_key"

    id: int = Field(
        default_factory=random_id,
        sa_column=Column(BigInteger, primary_key=True, autoincrement=False),
    )
    workspace_id: int = Field(
        sa_column=Column(
            BigInteger,
            ForeignKey("workspace.id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        )
    )
    name: str
    digest: bytes = Field(unique=True)  # HMAC-SHA256 of the key under the server's pepper
    prefix: str  # the first characters of the key, to tell keys apart
    scopes: list[str] = Field(sa_column=Column(JSON, nullable=False))
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    # A key that was deleted stays for a while without its name, so that its use can be told.
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime, index=True)
    refused_at: datetime | None = Field(default=None, sa_type=UtcDateTime)  # last told of
