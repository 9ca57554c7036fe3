"""Saved chats. Chats of other workspaces are treated as nonexistent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, Column, ForeignKey, Index, Text, Uuid, delete, func, update
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, page_of, utc_now


class Chat(SQLModel, table=True):
    """A conversation of a workspace."""

    __table_args__ = (
        Index("ix_chat_workspace_id_updated_at", "workspace_id", "updated_at"),
        Index("ix_chat_updated_at", "updated_at"),
    )

    id: UUID = Field(sa_column=Column(Uuid, primary_key=True))
    workspace_id: int = Field(sa_column=workspace_reference())
    title: str  # the beginning of the user's first message
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
    model: str | None = None  # answers only: the model that generated it
    prompt_tokens: int | None = None  # answers only
    completion_tokens: int | None = None  # answers only
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def append_to_chat(
    session: Session,
    workspace_id: int,
    chat_id: UUID,
    entries: Sequence[ChatEntry],
    title: str | None = None,
) -> None:
    """Appends messages to a chat; with a `title` it is created first.

    Sets the positions of `entries`. Does nothing when the chat was deleted meanwhile.
    """
    if title is not None:
        session.add(Chat(id=chat_id, workspace_id=workspace_id, title=title))
        session.flush()
    else:
        # This update locks the row, so that two answers in one chat get different positions.
        used = (
            update(Chat)
            .where(col(Chat.id) == chat_id, col(Chat.workspace_id) == workspace_id)
            .values(updated_at=utc_now())
        )
        if not change_rows(session, used):
            return
    last = session.exec(
        select(func.max(ChatEntry.position)).where(ChatEntry.chat_id == chat_id)
    ).one()
    first = 0 if last is None else last + 1
    for position, entry in enumerate(entries, start=first):
        entry.chat_id = chat_id
        entry.position = position
        session.add(entry)


def read_chat(
    session: Session, workspace_id: int, chat_id: UUID
) -> tuple[Chat, list[ChatEntry]] | None:
    """The chat and its messages in order, or None when there is no such chat."""
    ours = (Chat.id == chat_id, Chat.workspace_id == workspace_id)
    chat = session.exec(select(Chat).where(*ours)).one_or_none()
    return None if chat is None else (chat, entries_of(session, chat_id))


def entries_of(session: Session, chat_id: UUID) -> list[ChatEntry]:
    """The messages in order."""
    query = select(ChatEntry).where(ChatEntry.chat_id == chat_id)
    return list(session.exec(query.order_by(col(ChatEntry.position))))


def list_chats(
    session: Session, workspace_id: int, page: int, limit: int
) -> tuple[list[Chat], int]:
    """One page of chats, last used first, and their total number; `page` counts from 1."""
    query = select(Chat).where(Chat.workspace_id == workspace_id)
    return page_of(session, query.order_by(col(Chat.updated_at).desc(), col(Chat.id)), page, limit)


def delete_chat(session: Session, workspace_id: int, chat_id: UUID) -> bool:
    """Deletes a chat and its messages; False when there is no such chat."""
    ours = (col(Chat.id) == chat_id, col(Chat.workspace_id) == workspace_id)
    return change_rows(session, delete(Chat).where(*ours)) > 0
