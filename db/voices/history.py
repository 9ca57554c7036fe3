"""The history of speech, which a workspace keeps for `Workspace.speech_history_days`."""

import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Index, LargeBinary, delete, or_, true
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import Workspace, lock_workspace, speech_since, workspace_reference
from db.database import UtcDateTime, change_rows, utc_now
from db.files import expire_these_files, keep_file
from db.retention import AT_ONCE

PAGE_BYTES = 2**20  # bytes of details after which a page ends
FETCHED = 50  # items per query


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFilter:
    """The choice of items of the history, and their order."""

    voice_id: str | None = None
    model_id: str | None = None
    source: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    start_after: str = ""  # id after which the list starts
    is_ascending: bool = False  # oldest first


def add_item(session: Session, item: HistoryItem) -> None:
    """Adds an item, and keeps its file; does nothing if the workspace or file is gone. Expires the
    file instead if the workspace no longer keeps speech."""
    workspace = lock_workspace(session, item.workspace_id, shared=True)
    if workspace is None:
        return
    if workspace.retention == "zero" or not workspace.speech_history_days:
        expire_these_files(session, [item.file_id], utc_now())
    elif keep_file(session, item.workspace_id, item.file_id, None):
        session.add(item)


def list_items(
    session: Session, workspace_id: int, which: HistoryFilter, limit: int
) -> tuple[list[HistoryItem], bool]:
    """Lists items, at most `limit` and about PAGE_BYTES; also returns whether more follow."""
    item_id = col(HistoryItem.id)
    created_at = col(HistoryItem.created_at)
    conditions = _kept(session, workspace_id)
    conditions += [
        getattr(HistoryItem, name) == value
        for name in ("voice_id", "model_id", "source")
        if (value := getattr(which, name))
    ]
    if which.since is not None:
        conditions.append(created_at >= which.since)
    if which.before is not None:
        conditions.append(created_at < which.before)
    if after := which.start_after:
        conditions.append(item_id > after if which.is_ascending else item_id < after)
    order = item_id if which.is_ascending else item_id.desc()
    query = select(HistoryItem).where(*conditions).order_by(order).limit(limit + 1)
    items: list[HistoryItem] = []
    size = 0
    with closing(session.exec(query.execution_options(yield_per=FETCHED))) as rows:
        for item in rows:
            if len(items) == limit or size >= PAGE_BYTES:
                return items, True
            items.append(item)
            size += len(item.details)
    return items, False


def find_items(
    session: Session, workspace_id: int, item_ids: list[str]
) -> Mapping[str, HistoryItem]:
    """Finds items of the workspace, by id."""
    these = col(HistoryItem.id).in_(item_ids)
    query = select(HistoryItem).where(these, *_kept(session, workspace_id))
    return {item.id: item for item in session.exec(query)}


def _kept(session: Session, workspace_id: int) -> list[ColumnElement[bool]]:
    """Return the conditions of the items that the workspace keeps now."""
    workspace = session.get(Workspace, workspace_id)
    now = utc_now()
    since = now if workspace is None else speech_since(workspace, now)
    return [col(HistoryItem.workspace_id) == workspace_id, col(HistoryItem.created_at) > since]


def delete_items(session: Session, file_ids: Mapping[str, str]) -> int:
    """Deletes items, and makes their files due for deletion; returns how many. `file_ids` has the
    file of each item."""
    these = col(HistoryItem.id).in_(file_ids)
    deleted = change_rows(session, delete(HistoryItem).where(these))
    expire_these_files(session, file_ids.values(), utc_now())
    return deleted


def delete_old_items(session: Session, now: datetime, workspace_id: int | None = None) -> int:
    """Deletes items that their workspaces no longer keep, AT_ONCE at most; returns how many. Skips
    items that another process deletes. `workspace_id` limits it to one workspace."""
    days = col(Workspace.speech_history_days)
    created_at = col(HistoryItem.created_at)
    is_chosen = col(Workspace.id) == workspace_id if workspace_id is not None else true()
    file_ids: dict[str, str] = {}
    for kept in session.exec(select(days).where(is_chosen).distinct()).all():
        end = now - timedelta(days=kept)
        query = select(HistoryItem.id, HistoryItem.file_id).where(
            is_chosen,
            days == kept,
            col(HistoryItem.workspace_id) == col(Workspace.id),
            or_(created_at <= end, created_at <= col(Workspace.history_since)),
        )
        query = query.order_by(col(HistoryItem.id)).limit(AT_ONCE - len(file_ids))
        locked = query.with_for_update(skip_locked=True, of=HistoryItem)
        file_ids.update(session.exec(locked).all())
    return delete_items(session, file_ids) if file_ids else 0
