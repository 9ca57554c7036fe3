"""The history of speech, which a workspace keeps for `Workspace.speech_history_days`."""

import secrets
import time
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Index, LargeBinary, delete
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import Workspace, workspace_reference
from db.database import UtcDateTime, change_rows, utc_now
from db.files import expire_these_files, keep_file
from db.retention import AT_ONCE


def new_item_id() -> str:
    """Makes a random id; ids sort by their time."""
    return f"{time.time_ns() // 1000:014x}{secrets.token_hex(8)}"


class HistoryItem(SQLModel, table=True):
    """A speech in the history; a stored file has its audio."""

    __tablename__ = "speech_history"
    __table_args__ = (Index("ix_speech_history_workspace_id_id", "workspace_id", "id"),)

    id: str = Field(default_factory=new_item_id, primary_key=True, max_length=40)
    workspace_id: int = Field(sa_column=workspace_reference())
    file_id: str = Field(max_length=40)
    source: str = Field(max_length=8)  # TTS, or STS for a recording in another voice
    voice_id: str
    model_id: str
    details: bytes = Field(sa_type=LargeBinary)  # JSON, encrypted
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime, index=True)


def add_item(session: Session, item: HistoryItem) -> None:
    """Adds an item, and keeps its file; without effect if the workspace or file is gone."""
    if keep_file(session, item.workspace_id, item.file_id, None):
        session.add(item)


def list_items(
    session: Session,
    workspace_id: int,
    *,
    since: datetime,
    before: datetime | None = None,
    start_after: str = "",
    is_ascending: bool = False,
    limit: int,
    voice_id: str | None = None,
    model_id: str | None = None,
    source: str | None = None,
) -> list[HistoryItem]:
    """Lists items from `since` on, newest first unless `is_ascending`.

    `start_after` is the id after which the list starts.
    """
    item_id = col(HistoryItem.id)
    equals = {"voice_id": voice_id, "model_id": model_id, "source": source}
    conditions: list[ColumnElement[bool]] = [
        col(HistoryItem.workspace_id) == workspace_id,
        col(HistoryItem.created_at) >= since,
        *(getattr(HistoryItem, name) == value for name, value in equals.items() if value),
    ]
    if before is not None:
        conditions.append(col(HistoryItem.created_at) < before)
    if start_after:
        conditions.append(item_id > start_after if is_ascending else item_id < start_after)
    order = item_id if is_ascending else item_id.desc()
    return list(session.exec(select(HistoryItem).where(*conditions).order_by(order).limit(limit)))


def find_items(
    session: Session, workspace_id: int, item_ids: list[str], since: datetime
) -> Mapping[str, HistoryItem]:
    """Finds items of the workspace from `since` on, by id."""
    query = select(HistoryItem).where(
        col(HistoryItem.id).in_(item_ids),
        col(HistoryItem.workspace_id) == workspace_id,
        col(HistoryItem.created_at) >= since,
    )
    return {item.id: item for item in session.exec(query)}


def delete_items(session: Session, items: list[HistoryItem]) -> int:
    """Deletes items, and makes their files due for deletion; returns how many."""
    expire_these_files(session, [item.file_id for item in items], utc_now())
    ids = [item.id for item in items]
    return change_rows(session, delete(HistoryItem).where(col(HistoryItem.id).in_(ids)))


def delete_old_items(session: Session, now: datetime, workspace_id: int | None = None) -> int:
    """Deletes items that are older than their workspaces keep them, AT_ONCE at most; returns how
    many. With `workspace_id`, only of that workspace."""
    days = col(Workspace.speech_history_days)
    its_workspace = col(HistoryItem.workspace_id) == col(Workspace.id)
    if workspace_id is not None:
        its_workspace &= col(Workspace.id) == workspace_id
    old: list[HistoryItem] = []
    for kept in session.exec(select(days).where(its_workspace).distinct()).all():
        is_old = col(HistoryItem.created_at) <= now - timedelta(days=kept)
        query = select(HistoryItem).where(its_workspace, days == kept, is_old)
        old += session.exec(query.limit(AT_ONCE - len(old))).all()
    return delete_items(session, old) if old else 0
