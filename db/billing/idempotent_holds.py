"""Holds of requests that may be sent again: what was captured for one is not captured again."""

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Session, col, select

from db.billing import ledger
from db.billing.tables import LedgerEntry

ATTEMPTS = 16  # of one request, each with an operation of its own


@dataclass(frozen=True, slots=True)
class IdempotentHold:
    """What became of the wish to hold."""

    operation: str
    is_paid: bool  # an earlier attempt was charged: nothing is held now


def hold_idempotently(
    session: Session,
    workspace_id: int,
    name: str,
    service: str,
    amount: int,
    expires_at: datetime,
) -> IdempotentHold | None:
    """As `ledger.hold` for the request `name`, of which only one attempt may run at a time.

    What an attempt held that died is given back first. None when there is not enough credit, or
    when too many attempts were made.
    """
    names = [f"{name}.{number}" for number in range(1, ATTEMPTS + 1)]
    # First, for this waits for an attempt that is captured right now, and then finds it.
    ledger.release_named(session, names)
    entries = session.exec(
        select(LedgerEntry.operation, LedgerEntry.kind).where(
            LedgerEntry.workspace_id == workspace_id, col(LedgerEntry.operation).in_(names)
        )
    ).all()
    kinds: dict[str, set[str]] = {}
    for operation, kind in entries:
        kinds.setdefault(operation, set()).add(kind)
    for operation, done in kinds.items():
        if "capture" in done and "refund" not in done:
            return IdempotentHold(operation, is_paid=True)
    if len(kinds) >= ATTEMPTS:
        return None
    operation = names[len(kinds)]
    if not ledger.hold(session, workspace_id, operation, service, amount, expires_at):
        return None
    return IdempotentHold(operation, is_paid=False)
