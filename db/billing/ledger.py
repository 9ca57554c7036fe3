"""The ledger: credit is granted, held, captured and given back; every change adds an entry.

A trigger adds each entry to the sums of its day, so nothing here reads all entries.

Each function belongs in one transaction. Whether credit suffices is decided by guarded updates of
one row, so no reader of an old balance can overspend. Locks are taken holds first, then accounts in
the order of their ids, except that a new hold, which no transaction can wait for, is added last.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, cast

from sqlalchemy import bindparam, delete, func, insert, literal, select, update
from sqlalchemy.sql import TableClause
from sqlmodel import Session, SQLModel

from db.audit import audit
from db.billing.tables import Account, CreditHold, LedgerDay, LedgerEntry
from db.database import Transaction, utc_now


def _table(model: type[SQLModel]) -> Any:
    """The bare table: rows as they are, without the cost of mapped objects."""
    return cast(TableClause, model.__table__)  # type: ignore[attr-defined]


_ACCOUNT, _HOLD = _table(Account), _table(CreditHold)
_ENTRY, _DAY = _table(LedgerEntry), _table(LedgerDay)
EXPIRED_AT_ONCE = 500
ATTEMPTS = 16  # of one request that may be sent again, each with an operation of its own

# What every request runs is put together once.
_KEEP = (
    update(_ACCOUNT)
    .where(
        _ACCOUNT.c.workspace_id == bindparam("account"),
        _ACCOUNT.c.balance - _ACCOUNT.c.held >= bindparam("kept"),
    )
    .values(held=_ACCOUNT.c.held + bindparam("kept"))
    .returning(_ACCOUNT.c.balance)
)
_SETTLE = (
    update(_ACCOUNT)
    .where(_ACCOUNT.c.workspace_id == bindparam("account"))
    .values(
        balance=_ACCOUNT.c.balance - bindparam("charged"),
        held=_ACCOUNT.c.held - bindparam("kept"),
    )
    .returning(_ACCOUNT.c.balance)
)
_TAKE_HOLD = delete(_HOLD).where(_HOLD.c.operation == bindparam("name")).returning(_HOLD.c.amount)
_OF_HOLD = (_HOLD.c.workspace_id, _HOLD.c.operation, _HOLD.c.service, _HOLD.c.amount)
_ADD_HOLD, _ADD_ENTRY = insert(_HOLD).inline(), insert(_ENTRY).inline()


@dataclass(frozen=True, slots=True)
class DayOfUsage:
    """What a workspace used of one service on one day in UTC."""

    day: date
    service: str
    units: int
    requests: int
    cost: int  # micro-USD


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """An account that does not agree with its entries and holds; all in micro-USD."""

    workspace_id: int
    balance: int
    entries: int  # their sum
    held: int
    entries_held: int
    holds: int  # what its open holds add up to


def open_account(session: Transaction, workspace_id: int, credit: int) -> None:
    """The account of a new workspace, with `credit` micro-USD granted."""
    values = {"workspace_id": workspace_id, "balance": credit, "held": 0}
    session.connection().execute(insert(_ACCOUNT).values(values))
    _add_entry(session, workspace_id, "signup", "grant", credit, amount=credit)


def credit_of(session: Transaction, workspace_id: int) -> int:
    """Micro-USD that can be held; 0 for a workspace without an account."""
    query = select(_ACCOUNT.c.balance - _ACCOUNT.c.held).where(
        _ACCOUNT.c.workspace_id == workspace_id
    )
    return session.connection().execute(query).scalar() or 0


CreditChange = Literal["done", "no_account", "done_before", "too_little"]
"""What became of a change of credit: what is to be taken may be more than can be spent."""


def change_credit(
    session: Session, workspace_id: int, operation: str, amount: int, actor: str
) -> CreditChange:
    """Adds `amount` micro-USD, or takes them when it is negative; nothing unless it says "done"."""
    kind = "grant" if amount > 0 else "adjust"
    if not lock_account(session, workspace_id):  # so that the same operation at once waits here
        return "no_account"
    if kind in _entries(session, workspace_id, operation):
        return "done_before"
    taken = (
        update(_ACCOUNT)
        .where(
            _ACCOUNT.c.workspace_id == workspace_id,
            _ACCOUNT.c.balance - _ACCOUNT.c.held + amount >= 0,
        )
        .values(balance=_ACCOUNT.c.balance + amount)
        .returning(_ACCOUNT.c.balance)
    )
    balance = session.connection().execute(taken).scalar()
    if balance is None:
        return "too_little"
    _add_entry(session, workspace_id, operation, kind, balance, amount=amount)
    audit(session, workspace_id, "credit.changed", actor, operation, {"micro_usd": amount})
    return "done"


def hold(
    session: Transaction,
    workspace_id: int,
    operation: str,
    service: str,
    amount: int,
    expires_at: datetime,
) -> bool:
    """Keeps `amount` micro-USD for some work. False, and nothing is held, without the credit."""
    connection = session.connection()
    balance = connection.execute(_KEEP, {"account": workspace_id, "kept": amount}).scalar()
    if balance is None:
        return False
    values = {
        "operation": operation,
        "workspace_id": workspace_id,
        "amount": amount,
        "service": service,
        "expires_at": expires_at,
    }
    connection.execute(_ADD_HOLD, values)
    _add_entry(session, workspace_id, operation, "hold", balance, held=amount, service=service)
    return True


@dataclass(frozen=True, slots=True)
class IdempotentHold:
    """What became of the wish to hold."""

    operation: str
    is_paid: bool  # an earlier attempt was charged: nothing is held now


def hold_idempotently(
    session: Transaction,
    workspace_id: int,
    name: str,
    service: str,
    amount: int,
    expires_at: datetime,
) -> IdempotentHold | None:
    """As `hold` for the request `name`, of which only one attempt may run at a time: what was
    captured for one is not captured again.

    What an attempt held that died is given back first. None when there is not enough credit, or
    when too many attempts were made.
    """
    names = [f"{name}.{number}" for number in range(1, ATTEMPTS + 1)]
    # First, for this waits for an attempt that is captured right now, and then finds it.
    release_named(session, names)
    query = select(_ENTRY.c.operation, _ENTRY.c.kind).where(
        _ENTRY.c.workspace_id == workspace_id, _ENTRY.c.operation.in_(names)
    )
    kinds: dict[str, set[str]] = defaultdict(set)
    for operation, kind in session.connection().execute(query):
        kinds[operation].add(kind)
    for operation, done in kinds.items():
        if "capture" in done and "refund" not in done:
            return IdempotentHold(operation, is_paid=True)
    if len(kinds) >= ATTEMPTS:
        return None
    operation = names[len(kinds)]
    if not hold(session, workspace_id, operation, service, amount, expires_at):
        return None
    return IdempotentHold(operation, is_paid=False)


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a hold."""

    charged: int  # micro-USD
    is_new: bool  # False when it was settled in the same way before, or otherwise


def capture(
    session: Transaction, workspace_id: int, operation: str, service: str, cost: int, units: int
) -> Settled:
    """Charges for the work, and gives back what else was held for it. Again changes nothing.

    Work whose hold had expired costs what is left of the credit, at most: who reads slowly enough
    would have it for nothing else.
    """
    return _end_hold(session, workspace_id, operation, "capture", service, cost, units)


def release(session: Transaction, workspace_id: int, operation: str, service: str) -> bool:
    """Gives back what is held. False when it was settled before."""
    return _end_hold(session, workspace_id, operation, "release", service).is_new


def _end_hold(
    session: Transaction,
    workspace_id: int,
    operation: str,
    kind: str,
    service: str,
    cost: int = 0,
    units: int = 0,
) -> Settled:
    """Ends the work of a hold, also of one that has expired; its row is gone then."""
    # Only one transaction gets the row.
    held = session.connection().execute(_TAKE_HOLD, {"name": operation}).scalar()
    if held is not None:
        charged = min(cost, held)
    else:
        if not lock_account(session, workspace_id):  # a concurrent call waits here
            return Settled(0, is_new=False)
        entries = _entries(session, workspace_id, operation)
        if kind in entries:
            return Settled(-entries[kind].amount, is_new=False)
        if "expire" not in entries or entries.keys() & {"capture", "release"}:
            return Settled(0, is_new=False)
        charged, held = min(cost, entries["hold"].held, credit_of(session, workspace_id)), 0
    balance = _settle(session, workspace_id, charged, held)
    _add_entry(
        session,
        workspace_id,
        operation,
        kind,
        balance,
        amount=-charged,
        held=-held,
        service=service,
        units=units,
    )
    return Settled(charged, is_new=True)


def refund(session: Transaction, workspace_id: int, operation: str) -> bool:
    """Gives back what was captured. False when nothing was, or it was given back before."""
    if not lock_account(session, workspace_id):
        return False
    entries = _entries(session, workspace_id, operation)
    if "capture" not in entries or "refund" in entries:
        return False
    captured = entries["capture"]
    balance = _settle(session, workspace_id, captured.amount, 0)
    _add_entry(
        session,
        workspace_id,
        operation,
        "refund",
        balance,
        amount=-captured.amount,
        service=captured.service,
        units=-captured.units,
    )
    return True


def release_expired(session: Transaction, now: datetime) -> int:
    """Releases holds that expired before they were settled, some at once; how many there were."""
    expired = (
        select(_HOLD.c.operation)
        .where(_HOLD.c.expires_at <= now)
        .order_by(_HOLD.c.expires_at)
        .limit(EXPIRED_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    return _give_back(session, expired, "expire")


def release_named(session: Transaction, operations: Collection[str]) -> int:
    """Gives back what is held under any of these names; how many holds there were."""
    return _give_back(session, operations, "release")


def usage(session: Transaction, workspace_id: int, first: date, last: date) -> list[DayOfUsage]:
    """Of both days and those between, by day and service; refunded work is not in it."""
    query = (
        select(
            _DAY.c.day,
            _DAY.c.service,
            _DAY.c.units,
            _DAY.c.captures - _DAY.c.refunds,
            -_DAY.c.amount,
        )
        .where(
            _DAY.c.workspace_id == workspace_id,
            _DAY.c.day.between(first, last),
            _DAY.c.captures + _DAY.c.refunds > 0,
        )
        .order_by(_DAY.c.day, _DAY.c.service)
    )
    return [DayOfUsage(*row) for row in session.connection().execute(query)]


def discrepancies(session: Transaction) -> list[Discrepancy]:
    """Accounts that are not the sum of their days, or hold other than their open holds."""
    entries = (
        select(
            _DAY.c.workspace_id,
            func.sum(_DAY.c.amount).label("amount"),
            func.sum(_DAY.c.held).label("held"),
        )
        .group_by(_DAY.c.workspace_id)
        .subquery()
    )
    holds = (
        select(_HOLD.c.workspace_id, func.sum(_HOLD.c.amount).label("amount"))
        .group_by(_HOLD.c.workspace_id)
        .subquery()
    )
    none = literal(0)
    amount, held = func.coalesce(entries.c.amount, none), func.coalesce(entries.c.held, none)
    open_holds = func.coalesce(holds.c.amount, none)
    query = (
        select(
            _ACCOUNT.c.workspace_id, _ACCOUNT.c.balance, amount, _ACCOUNT.c.held, held, open_holds
        )
        .outerjoin(entries, entries.c.workspace_id == _ACCOUNT.c.workspace_id)
        .outerjoin(holds, holds.c.workspace_id == _ACCOUNT.c.workspace_id)
        .where(
            (_ACCOUNT.c.balance != amount)
            | (_ACCOUNT.c.held != held)
            | (_ACCOUNT.c.held != open_holds)
        )
    )
    return [
        Discrepancy(*(int(value) for value in row)) for row in session.connection().execute(query)
    ]


def _settle(session: Transaction, workspace_id: int, charged: int, held: int) -> int:
    """Takes `charged` off the balance and `held` off what is held; the balance after it."""
    values = {"account": workspace_id, "charged": charged, "kept": held}
    balance: int = session.connection().execute(_SETTLE, values).scalar_one()
    return balance


def _give_back(session: Transaction, operations: Any, kind: str) -> int:
    """Deletes the holds and notes their end; how many there were."""
    taken = delete(_HOLD).where(_HOLD.c.operation.in_(operations)).returning(*_OF_HOLD)
    of_workspace: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
    for workspace_id, operation, service, amount in session.connection().execute(taken).all():
        of_workspace[workspace_id].append((operation, service, amount))
    for workspace_id, ended in sorted(of_workspace.items()):
        balance = _settle(session, workspace_id, 0, sum(amount for _, _, amount in ended))
        for operation, service, amount in ended:
            _add_entry(
                session, workspace_id, operation, kind, balance, held=-amount, service=service
            )
    return sum(map(len, of_workspace.values()))


def lock_account(session: Transaction, workspace_id: int) -> bool:
    """Locks the account until the end of the transaction; False without one."""
    query = (
        select(_ACCOUNT.c.workspace_id)
        .where(_ACCOUNT.c.workspace_id == workspace_id)
        .with_for_update()
    )
    return session.connection().execute(query).scalar() is not None


def _entries(session: Transaction, workspace_id: int, operation: str) -> dict[str, Any]:
    """What was done under that name, by kind."""
    query = select(_ENTRY).where(
        _ENTRY.c.workspace_id == workspace_id, _ENTRY.c.operation == operation
    )
    return {row.kind: row for row in session.connection().execute(query)}


def _add_entry(
    session: Transaction,
    workspace_id: int,
    operation: str,
    kind: str,
    balance_after: int,
    *,
    amount: int = 0,
    held: int = 0,
    service: str = "",
    units: int = 0,
) -> None:
    values = {
        "workspace_id": workspace_id,
        "operation": operation,
        "kind": kind,
        "amount": amount,
        "held": held,
        "balance_after": balance_after,
        "service": service,
        "units": units,
        "created_at": utc_now(),
    }
    session.connection().execute(_ADD_ENTRY, values)
