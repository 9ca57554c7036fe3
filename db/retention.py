"""Deletes and blanks data after its retention time, some rows at a time."""

from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, inspect, select, tuple_, update
from sqlmodel import Session, SQLModel, col

from db.accounts import Workspace
from db.database import change_rows
from db.deliveries import cancel
from db.webhooks import Delivery, Event, Webhook

AT_ONCE = 500
"""Maximum number of rows that a call changes, so that other writers do not wait long."""


def delete_older(
    session: Session, table: type[SQLModel], moment: datetime | None, before: datetime
) -> int:
    """Deletes rows whose `moment` is not after `before`, with a cascade; returns how many."""
    key = inspect(table).primary_key
    old = select(*key).where(col(moment) <= before).limit(AT_ONCE)
    return change_rows(session, delete(table).where(tuple_(*key).in_(old)))


def blank_old_events(session: Session, before: datetime) -> int:
    """Blanks the bodies of events earlier than `before`; returns how many."""
    return _blank(session, col(Event.created_at) < before)


def blank_settled_events(session: Session) -> int:
    """Blanks the bodies of events without pending deliveries, in workspaces with zero retention."""
    waiting = exists().where(
        col(Delivery.event_id) == col(Event.id), col(Delivery.status) == "pending"
    )
    quiet = select(col(Workspace.id)).where(col(Workspace.retention) == "zero")
    return _blank(session, col(Event.workspace_id).in_(quiet) & ~waiting)


def cancel_stranded(session: Session, now: datetime) -> int:
    """Cancels deliveries to inactive webhooks that a dead worker has left; returns how many."""
    inactive = select(col(Webhook.id)).where(col(Webhook.status) == "inactive")
    return cancel(session, now, col(Delivery.webhook_id).in_(inactive))


def forget_old_secrets(session: Session, now: datetime) -> int:
    """Deletes the old secrets of webhooks that are no longer used to sign; returns how many."""
    old = update(Webhook).where(col(Webhook.old_secret_until) <= now)
    return change_rows(session, old.values(old_secret=None, old_secret_until=None))


def delete_old_callbacks(session: Session, before: datetime) -> int:
    """Deletes callbacks earlier than `before`, with their deliveries; returns how many."""
    old = (col(Webhook.job_id).is_not(None), col(Webhook.created_at) < before)
    chosen = select(col(Webhook.id)).where(*old).limit(AT_ONCE)
    return change_rows(session, delete(Webhook).where(col(Webhook.id).in_(chosen)))


def _blank(session: Session, which: ColumnElement[bool]) -> int:
    chosen = select(col(Event.id)).where(col(Event.body).is_not(None), which).limit(AT_ONCE)
    return change_rows(session, update(Event).where(col(Event.id).in_(chosen)).values(body=None))
