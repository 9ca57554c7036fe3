"""Deletes and blanks what was kept for long enough, some at a time."""

from datetime import datetime

from sqlalchemy import delete, exists, update
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from db.accounts import ApiKey, Workspace
from db.chats import Chat
from db.deliveries import is_free
from db.webhooks import Delivery, Event, Webhook

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


def delete_old_events(session: Session, before: datetime) -> int:
    """Events of before that, with what became of their deliveries; how many."""
    old = select(Event.id).where(col(Event.created_at) < before).limit(AT_ONCE)
    deleted = session.connection().execute(delete(Event).where(col(Event.id).in_(old)))
    return deleted.rowcount


def cancel_stranded(session: Session, now: datetime) -> int:
    """Ends deliveries of inactive webhooks that a worker was at when it died; how many."""
    inactive = select(Webhook.id).where(Webhook.status == "inactive")
    cancelled = session.connection().execute(
        update(Delivery)
        .where(
            col(Delivery.status) == "pending",
            is_free(now),
            col(Delivery.webhook_id).in_(inactive),
        )
        .values(status="cancelled", lease=None, lease_until=None)
    )
    return cancelled.rowcount


def forget_old_secrets(session: Session, now: datetime) -> int:
    """Removes secrets of webhooks that sign no more since new ones took their place; how many."""
    forgotten = session.connection().execute(
        update(Webhook)
        .where(col(Webhook.old_secret_until) <= now)
        .values(old_secret=None, old_secret_until=None)
    )
    return forgotten.rowcount


def forget_revoked_keys(session: Session, before: datetime) -> int:
    """Deletes API keys that were revoked before that; how many."""
    old = select(ApiKey.id).where(col(ApiKey.revoked_at) < before).limit(AT_ONCE)
    deleted = session.connection().execute(delete(ApiKey).where(col(ApiKey.id).in_(old)))
    return deleted.rowcount


def _blank(session: Session, chosen: SelectOfScalar[str]) -> int:
    blanked = session.connection().execute(
        update(Event).where(col(Event.id).in_(chosen.limit(AT_ONCE))).values(body=None)
    )
    return blanked.rowcount
