"""Saved chats. Chats of other workspaces are treated as nonexistent. A turn is a user's messages
with their answer. It follows the previous turn in the table, or else an earlier one that it names;
then it is a branch."""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import JSON, BigInteger, Column, Index, Text, delete, func, update
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, page_of, utc_now

# Overheads, so that bounds in bytes also bound the number of rows.
CHAT_BYTES = 4096  # per chat, beside its messages
MESSAGE_BYTES = 200  # per message, beside its text
ALL = 1_000_000  # messages
DELETED = ""  # turn of a deleted answer that later messages continue


class Chat(SQLModel, table=True):
    """A conversation of a workspace."""

    __table_args__ = (
        Index("ix_chat_workspace_id_updated_at", "workspace_id", "updated_at"),
        Index("ix_chat_updated_at", "updated_at"),
        Index("ix_chat_workspace_id_stored_bytes", "workspace_id", "stored_bytes"),
    )

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference())
    title: str  # beginning of the user's first message
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
    model: str | None = None  # answers only: model that generated it
    prompt_tokens: int | None = None  # answers only
    completion_tokens: int | None = None  # answers only
    turn: str | None = Field(default=None, max_length=16)  # answers only: random name of the turn
    follows: int | None = None  # position of the preceding message; None: the next lower one
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def append_to_chat(
    session: Session,
    workspace_id: int,
    chat_id: UUID,
    entries: Sequence[ChatEntry],
    title: str | None = None,
    after: str | None = None,
) -> None:
    """Appends messages to a chat; with a `title` it is created first. They follow the turn `after`,
    by default the last message. Sets the positions of `entries`. Does nothing when the chat or that
    turn was deleted meanwhile."""
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
        if after is not None:
            named = select(ChatEntry.position).where(
                ChatEntry.chat_id == chat_id, ChatEntry.turn == after
            )
            entries[0].follows = session.exec(named).one_or_none()
            if entries[0].follows is None:
                session.rollback()  # undoes the change of the size
                return
    for position, entry in enumerate(entries, start=count_messages(session, chat_id)):
        entry.chat_id = chat_id
        entry.position = position
        session.add(entry)


def count_messages(session: Session, chat_id: UUID) -> int:
    """Counts the messages of a chat."""
    number = select(func.max(ChatEntry.position) + 1).where(ChatEntry.chat_id == chat_id)
    return int(session.exec(number).one() or 0)


def find_chat(session: Session, workspace_id: int, chat_id: UUID) -> Chat | None:
    """Finds a chat, without its messages; None when there is none."""
    ours = (Chat.id == chat_id, Chat.workspace_id == workspace_id)
    return session.exec(select(Chat).where(*ours)).one_or_none()


def bytes_of_chats(session: Session, workspace_id: int) -> int:
    """Sums the stored bytes of all chats of the workspace, from an index."""
    total = select(func.sum(Chat.stored_bytes)).where(Chat.workspace_id == workspace_id)
    return int(session.exec(total).one() or 0)


def read_chat(
    session: Session, workspace_id: int, chat_id: UUID, page: int = 1, limit: int = ALL
) -> tuple[Chat, list[ChatEntry], int] | None:
    """Reads a chat, a page of its messages in order, and their number; None without the chat."""
    chat = find_chat(session, workspace_id, chat_id)
    if chat is None:
        return None
    query = select(ChatEntry).where(ChatEntry.chat_id == chat_id)
    return chat, *page_of(session, query.order_by(col(ChatEntry.position)), page, limit)


def entries_of(session: Session, chat_id: UUID) -> list[ChatEntry]:
    """Lists the messages of a chat in order."""
    query = select(ChatEntry).where(ChatEntry.chat_id == chat_id)
    return list(session.exec(query.order_by(col(ChatEntry.position))))


def find_answers(
    session: Session, workspace_id: int, chat_ids: Collection[UUID], turns: Collection[str]
) -> list[ChatEntry]:
    """Finds the answers in these chats whose turn has one of these names."""
    query = select(ChatEntry).join(Chat).where(Chat.workspace_id == workspace_id)
    return list(
        session.exec(
            query.where(col(ChatEntry.chat_id).in_(chat_ids), col(ChatEntry.turn).in_(turns))
        )
    )


def path_to(entries: Sequence[ChatEntry], turn: str | None = None) -> list[ChatEntry]:
    """Selects the messages of a whole chat up to the answer of a turn, or to the last message.
    Empty when there is no such turn."""
    by_position = {entry.position: entry for entry in entries}
    last = (entry for entry in reversed(entries) if turn in (None, entry.turn))
    entry = next(last, None)
    path: list[ChatEntry] = []
    while entry is not None:
        path.append(entry)
        entry = by_position.get(_before(entry))
    return path[::-1]


def _before(entry: ChatEntry) -> int:
    return entry.position - 1 if entry.follows is None else entry.follows


def list_chats(
    session: Session, workspace_id: int, page: int, limit: int
) -> tuple[list[Chat], int]:
    """Lists one page of chats, last used first, and their total number; `page` counts from 1."""
    query = select(Chat).where(Chat.workspace_id == workspace_id)
    return page_of(session, query.order_by(col(Chat.updated_at).desc(), col(Chat.id)), page, limit)


def delete_chat(session: Session, workspace_id: int, chat_id: UUID) -> bool:
    """Deletes a chat and its messages; False when there is no such chat."""
    ours = (col(Chat.id) == chat_id, col(Chat.workspace_id) == workspace_id)
    return change_rows(session, delete(Chat).where(*ours)) > 0


def delete_turn(session: Session, workspace_id: int, chat_id: UUID, turn: str) -> bool:
    """Deletes an answer, and the messages that led to no other answer; False when there is no such
    turn. If a later turn continues the answer, its messages stay, without the name of their turn,
    until the later turn is deleted. A chat without messages is deleted."""
    ours = (col(Chat.id) == chat_id, col(Chat.workspace_id) == workspace_id)
    same = update(Chat).where(*ours).values(stored_bytes=col(Chat.stored_bytes))
    if not change_rows(session, same):  # locks the row, as `append_to_chat` does
        return False
    entries = {entry.position: entry for entry in entries_of(session, chat_id)}
    answer = next((entry for entry in entries.values() if entry.turn == turn), None)
    if answer is None:
        return False
    followers = Counter(map(_before, entries.values()))
    gone: list[int] = []
    size = 0
    last: ChatEntry | None = answer
    while last and not followers[last.position]:
        if last is not answer and last.model is not None and last.turn != DELETED:
            break  # another answer that still exists
        gone.append(last.position)
        size += len(last.content) + MESSAGE_BYTES
        followers[_before(last)] -= 1
        last = entries.get(_before(last))
    if not gone:
        answer.turn = DELETED
        return True
    if len(gone) == len(entries):
        return delete_chat(session, workspace_id, chat_id)
    its = (col(ChatEntry.chat_id) == chat_id, col(ChatEntry.position).in_(gone))
    freed = update(Chat).where(*ours).values(stored_bytes=col(Chat.stored_bytes) - size)
    change_rows(session, delete(ChatEntry).where(*its))
    return change_rows(session, freed) > 0
