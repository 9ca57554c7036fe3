"""Saved chats. Chats of other workspaces are treated as nonexistent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Column, Index, Text, delete, func, update
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, page_of, utc_now

# So that bounds in bytes bound the number of rows too.
CHAT_BYTES = 4096  # of a chat beside its messages
MESSAGE_BYTES = 200  # of a message beside its text
ALL = 1_000_000  # messages


class Chat(SQLModel, table=True):
    """A conversation of a workspace."""

    __table_args__ = (
        Index("ix_chat_workspace_id_updated_at", "workspace_id", "updated_at"),
        Index("ix_chat_updated_at", "updated_at"),
        Index("ix_chat_workspace_id_stored_bytes", "workspace_id", "stored_bytes"),
    )

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference())
    title: str  # the beginning of the user's first message
    stored_bytes: int = Field(
        default=CHAT_BYTES, sa_type=BigInteger, sa_column_kwargs={"server_default": str(CHAT_BYTES)}
    )
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    updated_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


class ChatEntry(SQLModel, table=True):
    """One message of a chat."""

    __tablename__ = "chat_message"

    chat_id: UUID = Field(foreign_key="chat.id", ondelete="CASCADE", primary_key=True)
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
    size = sum(len(entry.content) + MESSAGE_BYTES for entry in entries)
    if title is not None:
        size += CHAT_BYTES
        session.add(Chat(id=chat_id, workspace_id=workspace_id, title=title, stored_bytes=size))
        session.flush()
    else:
        # This update locks the row, so that two answers in one chat get different positions.
        used = (
            update(Chat)
            .where(col(Chat.id) == chat_id, col(Chat.workspace_id) == workspace_id)
            .values(updated_at=utc_now(), stored_bytes=col(Chat.stored_bytes) + size)
        )
        if not change_rows(session, used):
            return
    for position, entry in enumerate(entries, start=count_messages(session, chat_id)):
        entry.chat_id = chat_id
        entry.position = position
        session.add(entry)


def count_messages(session: Session, chat_id: UUID) -> int:
    """How many messages the chat has."""
    number = select(func.max(ChatEntry.position) + 1).where(ChatEntry.chat_id == chat_id)
    return int(session.exec(number).one() or 0)


def find_chat(session: Session, workspace_id: int, chat_id: UUID) -> Chat | None:
    """The chat without its messages, or None when there is no such chat."""
    ours = (Chat.id == chat_id, Chat.workspace_id == workspace_id)
    return session.exec(select(Chat).where(*ours)).one_or_none()


def bytes_of_chats(session: Session, workspace_id: int) -> int:
    """The stored bytes of all chats of the workspace, read from an index."""
    total = select(func.sum(Chat.stored_bytes)).where(Chat.workspace_id == workspace_id)
    return int(session.exec(total).one() or 0)


def read_chat(
    session: Session, workspace_id: int, chat_id: UUID, page: int = 1, limit: int = ALL
) -> tuple[Chat, list[ChatEntry], int] | None:
    """The chat, a page of its messages in order, and their number; None without such a chat."""
    chat = find_chat(session, workspace_id, chat_id)
    if chat is None:
        return None
    query = select(ChatEntry).where(ChatEntry.chat_id == chat_id)
    return chat, *page_of(session, query.order_by(col(ChatEntry.position)), page, limit)


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
