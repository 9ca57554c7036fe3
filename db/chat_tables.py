"""The tables of saved chats."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Text, Uuid
from sqlmodel import Field, SQLModel

import db.tables  # noqa: F401  (first: it says how constraints are named)
from db.columns import UtcDateTime, utc_now


class Chat(SQLModel, table=True):
    """A conversation of a workspace."""

    __table_args__ = (
        Index("ix_chat_workspace_id_updated_at", "workspace_id", "updated_at"),
        Index("ix_chat_updated_at", "updated_at"),
    )

    id: UUID = Field(sa_column=Column(Uuid, primary_key=True))
    workspace_id: int = Field(
        sa_column=Column(BigInteger, ForeignKey("workspace.id", ondelete="CASCADE"), nullable=False)
    )
    title: str  # the beginning of what the user said first
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    updated_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class ChatEntry(SQLModel, table=True):
    """One message of a chat."""

    __tablename__ = "chat_message"

    chat_id: UUID = Field(
        sa_column=Column(Uuid, ForeignKey("chat.id", ondelete="CASCADE"), primary_key=True)
    )
    position: int = Field(primary_key=True)  # from 0
    role: str
    content: str = Field(sa_type=Text)
    extra: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))  # tool calls, name
    model: str | None = None  # answers only: what really answered
    prompt_tokens: int | None = None  # answers only
    completion_tokens: int | None = None  # answers only
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
