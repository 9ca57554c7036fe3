"""Webhooks of workspaces. One of another workspace is one that does not exist."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CursorResult, delete, func, or_, update
from sqlmodel import Session, col, select

from db.tables import Workspace
from db.webhooks.tables import Delivery, Webhook


def add_webhook(session: Session, webhook: Webhook, limit: int) -> bool:
    """False, and nothing written, when the workspace has `limit` of them already."""
    # The lock makes two that come at once count one after the other.
    session.get(Workspace, webhook.workspace_id, with_for_update={"key_share": True})
    count = session.exec(
        select(func.count())
        .select_from(Webhook)
        .where(Webhook.workspace_id == webhook.workspace_id)
    ).one()
    if count >= limit:
        return False
    session.add(webhook)
    session.flush()
    return True


def webhooks_of(session: Session, workspace_id: int) -> list[Webhook]:
    """Newest first."""
    query = (
        select(Webhook)
        .where(Webhook.workspace_id == workspace_id)
        .order_by(col(Webhook.created_at).desc(), col(Webhook.id))
    )
    return list(session.exec(query))


def webhook_of(
    session: Session, workspace_id: int, webhook_id: UUID, *, lock: bool = False
) -> Webhook | None:
    """With `lock` nobody else changes it until the commit; events may still name it."""
    query = select(Webhook).where(Webhook.id == webhook_id, Webhook.workspace_id == workspace_id)
    if lock:
        query = query.with_for_update(key_share=True)
    return session.exec(query).one_or_none()


def delete_webhook(session: Session, workspace_id: int, webhook_id: UUID) -> bool:
    """Whether there was one; what was on its way to it goes with it."""
    found: CursorResult[tuple[()]] = session.connection().execute(
        delete(Webhook).where(
            col(Webhook.id) == webhook_id, col(Webhook.workspace_id) == workspace_id
        )
    )
    return found.rowcount > 0


def activate(session: Session, webhook: Webhook) -> None:
    """Delivers what happens from now on; the row is locked."""
    webhook.status = "active"
    webhook.failing_since = None
    session.add(webhook)


def deactivate(session: Session, webhook: Webhook, now: datetime) -> None:
    """Ends its deliveries, which can be sent again by hand; the row is locked.

    One that a worker is at ends by itself.
    """
    webhook.status = "inactive"
    session.add(webhook)
    session.flush()
    session.connection().execute(
        update(Delivery)
        .where(
            col(Delivery.webhook_id) == webhook.id,
            col(Delivery.status) == "pending",
            or_(col(Delivery.lease_until).is_(None), col(Delivery.lease_until) <= now),
        )
        .values(status="cancelled", lease=None, lease_until=None)
    )
