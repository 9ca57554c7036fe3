"""Deletes and blanks what was kept for long enough, some at a time."""

from datetime import datetime

from sqlalchemy import delete, exists, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from db.chat_tables import Chat
from db.tables import Workspace
from db.webhook_tables import Delivery, Event

AT_ONCE = 500
"""Rows that one call changes at most, so that no writer waits for long."""


def delete_unused_chats(session: Session, before: datetime) -> int:
    """Chats that were last used before that; how many."""
    unused = select(Chat.id).where(col(Chat.updated_at) < before).limit(AT_ONCE)
    deleted = session.connection().execute(delete(Chat).where(col(Chat.id).in_(unused)))
    return deleted.rowcount


def blank_old_events(session: Session, before: datetime) -> int:
    """Removes the bodies of events of before that; how many."""
    old = select(Event.id).where(col(Event.created_at) < before, col(Event.body).is_not(None))
    return _blank(session, old)


def blank_settled_events(session: Session) -> int:
    """Removes the bodies of events that need no more delivery, in workspaces that keep nothing."""
    waiting = exists().where(
        col(Delivery.event_id) == col(Event.id), col(Delivery.status) == "pending"
    )
    settled = (
        select(Event.id)
        .join(Workspace, col(Workspace.id) == col(Event.workspace_id))
        .where(Workspace.retention == "zero", col(Event.body).is_not(None), ~waiting)
    )
    return _blank(session, settled)


def _blank(session: Session, chosen: SelectOfScalar[str]) -> int:
    blanked = session.connection().execute(
        update(Event).where(col(Event.id).in_(chosen.limit(AT_ONCE))).values(body=None)
    )
    return blanked.rowcount
