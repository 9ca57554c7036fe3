"""Subscriptions of workspaces to plans, with billing cycles."""

from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlmodel import Field, Session, SQLModel, select

from db.accounts import Workspace, workspace_reference
from db.audit import audit
from db.database import UtcDateTime, utc_now
from db.idempotency import note_once

CONFIRMATIONS = "/billing/confirmations"
CONFIRMED_FOR = timedelta(seconds=600)  # a signature is valid 300 s before and after its time


class Subscription(SQLModel, table=True):
    """The billing cycle of a workspace's plan; the plan itself is a column of the workspace."""

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference(unique=True))
    status: str = "active"
    billing_cycle: str  # monthly or annual
    anchor_at: datetime = Field(sa_type=UtcDateTime)  # billing dates are whole cycles later
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)


def workspace_and_subscription(
    session: Session, workspace_id: int, *, lock: bool = False
) -> tuple[Workspace, Subscription | None] | None:
    """Reads a workspace and its subscription, if any; None without the workspace."""
    workspace = session.get(Workspace, workspace_id, with_for_update=lock)
    if workspace is None:
        return None
    query = select(Subscription).where(Subscription.workspace_id == workspace_id)
    return workspace, session.exec(query).first()


def subscribe(
    session: Session,
    workspace_id: int,
    plan: str,
    billing_cycle: str,
    now: datetime,
    actor: str,
    message_id: str | None = None,
) -> tuple[Workspace, Subscription | None] | None:
    """Puts the workspace on `plan`, paid from `now` on; None without the workspace. Idempotent for
    the same plan and cycle. A message with an id changes the plan once."""
    # The lock serialises requests of one workspace.
    current = workspace_and_subscription(session, workspace_id, lock=True)
    if current is None:
        return None
    workspace, subscription = current
    if message_id is not None:
        until = now + CONFIRMED_FOR
        if not note_once(session, workspace_id, CONFIRMATIONS, message_id, now, until):
            return current
    if subscription is None:
        subscription = Subscription(
            id=uuid4(),
            workspace_id=workspace_id,
            billing_cycle=billing_cycle,
            anchor_at=now,
            created_at=now,
        )
    elif (workspace.plan, subscription.billing_cycle) == (plan, billing_cycle):
        return workspace, subscription
    else:
        subscription.billing_cycle = billing_cycle
        subscription.anchor_at = now
    workspace.plan = plan
    session.add(workspace)
    session.add(subscription)
    details = {"plan": plan, "billing_cycle": billing_cycle}
    audit(session, workspace_id, "plan.subscribed", actor, str(subscription.id), details)
    return workspace, subscription
