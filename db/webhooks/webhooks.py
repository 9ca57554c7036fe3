"""Webhooks of workspaces. One of another workspace is one that does not exist."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import JSON, Column, CursorResult, LargeBinary, Uuid, delete, func
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import Workspace, workspace_reference
from db.columns import UtcDateTime, utc_now


class Webhook(SQLModel, table=True):
    """An address that wants to be told of events."""

    id: UUID = Field(sa_column=Column(Uuid, primary_key=True))
    workspace_id: int = Field(sa_column=workspace_reference(index=True))
    url: str = Field(max_length=2048)
    events: list[str] = Field(sa_column=Column(JSON, nullable=False))
    status: str = "active"  # or inactive
    secret: bytes | None = Field(default=None, sa_type=LargeBinary)  # sealed
    old_secret: bytes | None = Field(default=None, sa_type=LargeBinary)  # sealed; while it rotates
    old_secret_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    failing_since: datetime | None = Field(default=None, sa_type=UtcDateTime)  # the first failure
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


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
    """`lock` locks its row until the commit; events may still refer to it."""
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
