"""The ledger: credit is granted, held, captured and released; every change adds an entry.

A trigger adds each entry to the sums of its day, so that no query here reads all entries.

Call each function in one transaction. Whether credit suffices is decided by guarded updates of one
row, so that no stale balance is overspent. Locks are taken in this order: the workspace, if the
transaction locks it, then holds, then accounts by their ids. A new hold is inserted last, since no
transaction can wait for it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from itertools import chain
from typing import Any, Literal, cast

from sqlalchemy import Select, bindparam, delete, func, insert, literal, null, select, update
from sqlalchemy.sql import TableClause
from sqlmodel import Session, SQLModel

from db.audit import audit
from db.billing.tables import Account, CreditHold, LedgerDay, LedgerEntry
from db.database import Transaction, change_rows, utc_now


def _table(model: type[SQLModel]) -> Any:
    """The SQLAlchemy table, for rows without the cost of mapped objects."""
    return cast(TableClause, model.__table__)  # type: ignore[attr-defined]


_ACCOUNT, _HOLD = _table(Account), _table(CreditHold)
_ENTRY, _DAY = _table(LedgerEntry), _table(LedgerDay)
EXPIRED_AT_ONCE = 500
ATTEMPTS = 16  # attempts of one idempotent request that one query reads
MOST_ATTEMPTS = 1024  # a batch line is tried again until a model is up
MOST_SUMS = 30_000  # in one answer; a workspace may make thousands of API keys a day

# The statements of every request are built once.
_RESERVE = (
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
_TAKE_HOLD = (
    delete(_HOLD)
    .where(_HOLD.c.operation == bindparam("name"))
    .returning(_HOLD.c.amount, _HOLD.c.key_id)
)
_ADD_HOLD, _ADD_ENTRY = insert(_HOLD).inline(), insert(_ENTRY).inline()


@dataclass(frozen=True, slots=True)
class DayOfUsage:
    """A workspace's usage of one service on one day in UTC."""

    day: date
    service: str
    key_id: int | None  # of the API key; 0 for tokens, None for all together
    units: int
    requests: int
    cost: int  # micro-USD


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """An account whose values differ from its entries or holds; all in micro-USD."""

    workspace_id: int
    balance: int
    entries: int  # sum of the entries
    held: int
    entries_held: int
    holds: int  # sum of the open holds


def open_account(session: Transaction, workspace_id: int, credit: int) -> None:
    """Opens the account of a new workspace, with `credit` micro-USD granted."""
    values = {"workspace_id": workspace_id, "balance": credit, "held": 0}
    session.connection().execute(insert(_ACCOUNT).values(values))
    _add_entry(session, workspace_id, "signup", "grant", credit, amount=credit)


def credit_of(session: Transaction, workspace_id: int) -> int:
    """The available credit in micro-USD; 0 for a workspace without an account."""
    query = select(_ACCOUNT.c.balance - _ACCOUNT.c.held).where(
        _ACCOUNT.c.workspace_id == workspace_id
    )
    return session.connection().execute(query).scalar() or 0


def held_of(session: Transaction, workspace_id: int) -> int:
    """The credit that is set aside for work in progress, in micro-USD."""
    query = select(_ACCOUNT.c.held).where(_ACCOUNT.c.workspace_id == workspace_id)
    return session.connection().execute(query).scalar() or 0


CreditChange = Literal["done", "no_account", "done_before", "too_little"]
"""The result of a change of credit; too_little: a deduction exceeds the available credit."""


def change_credit(
    session: Session, workspace_id: int, operation: str, amount: int, actor: str
) -> CreditChange:
    """Adds `amount` micro-USD, which may be negative; changes nothing unless it returns "done"."""
    kind = "grant" if amount > 0 else "adjust"
    if not lock_account(session, workspace_id):  # a concurrent call of the operation waits here
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
    *,
    workspace_id: int,
    operation: str,
    service: str,
    amount: int,
    expires_at: datetime,
    key_id: int = 0,
) -> bool:
    """Sets `amount` micro-USD aside for work of an API key, or of a token (`key_id` 0). False, and
    nothing is held, when the credit is too little."""
    connection = session.connection()
    balance = connection.execute(_RESERVE, {"account": workspace_id, "kept": amount}).scalar()
    if balance is None:
        return False
    shared: dict[str, Any] = {"service": service, "key_id": key_id}
    values = {
        "operation": operation,
        "workspace_id": workspace_id,
        "amount": amount,
        "expires_at": expires_at,
    }
    connection.execute(_ADD_HOLD, values | shared)
    _add_entry(session, workspace_id, operation, "hold", balance, held=amount, **shared)
    return True


@dataclass(frozen=True, slots=True)
class IdempotentHold:
    """The result of `hold_idempotently`."""

    operation: str
    is_paid: bool  # an earlier attempt was charged, so nothing is held


def hold_idempotently(
    session: Transaction,
    *,
    workspace_id: int,
    name: str,
    service: str,
    amount: int,
    expires_at: datetime,
    key_id: int = 0,
) -> IdempotentHold | None:
    """Holds credit for an attempt of the request `name`, as `hold` does; only one attempt may run
    at a time. A request that was captured is not captured again. The hold of an attempt that died
    is released first. None when the credit is too little, or after too many attempts."""
    attempts = list(_attempts(session, workspace_id, name, releases=True))
    for operation, done in chain.from_iterable(kinds.items() for kinds, _ in attempts):
        if "capture" in done and "refund" not in done:
            return IdempotentHold(operation, is_paid=True)
    _, following = attempts[-1]
    if following is None or not hold(
        session,
        workspace_id=workspace_id,
        operation=following,
        service=service,
        amount=amount,
        expires_at=expires_at,
        key_id=key_id,
    ):
        return None
    return IdempotentHold(following, is_paid=False)


def has_paid(session: Transaction, workspace_id: int, name: str) -> bool:
    """Whether an attempt of the request `name` was captured, or still has a hold."""
    attempts = _attempts(session, workspace_id, name)
    kinds = chain.from_iterable(of_operations.values() for of_operations, _ in attempts)
    return any(done == {"hold"} or "capture" in done and "refund" not in done for done in kinds)


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of the end of a hold."""

    charged: int  # micro-USD
    is_new: bool  # False when it was settled before, in this way or another


def capture(
    session: Transaction, *, workspace_id: int, operation: str, service: str, cost: int, units: int
) -> Settled:
    """Charges for the work and releases the rest of the hold. Idempotent. An expired hold is
    charged, too, but only up to the remaining credit: otherwise a client that reads slowly enough
    would pay nothing."""
    return _end_hold(
        session,
        kind="capture",
        workspace_id=workspace_id,
        operation=operation,
        service=service,
        cost=cost,
        units=units,
    )


def release(session: Transaction, *, workspace_id: int, operation: str, service: str) -> bool:
    """Releases the hold. False when it was settled before."""
    return _end_hold(
        session, kind="release", workspace_id=workspace_id, operation=operation, service=service
    ).is_new


def _end_hold(
    session: Transaction,
    *,
    kind: Literal["capture", "release"],
    workspace_id: int,
    operation: str,
    service: str,
    cost: int = 0,
    units: int = 0,
) -> Settled:
    """Ends a hold, whose row is deleted already if it has expired."""
    # Only one transaction deletes the row.
    taken = session.connection().execute(_TAKE_HOLD, {"name": operation}).one_or_none()
    if taken is not None:
        held, key_id = taken
        charged = min(cost, held)
    else:
        if not lock_account(session, workspace_id):  # a concurrent call waits here
            return Settled(0, is_new=False)
        entries = _entries(session, workspace_id, operation)
        if kind in entries:
            return Settled(-entries[kind].amount, is_new=False)
        if "expire" not in entries or entries.keys() & {"capture", "release"}:
            return Settled(0, is_new=False)
        charged = min(cost, entries["hold"].held, credit_of(session, workspace_id))
        held = 0
        key_id = entries["hold"].key_id
    balance = _settle(session, workspace_id=workspace_id, charged=charged, held=held)
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
        key_id=key_id,
    )
    return Settled(charged, is_new=True)


def refund(session: Transaction, workspace_id: int, operation: str) -> bool:
    """Returns a captured charge. False without a capture, or when it was refunded before."""
    if not lock_account(session, workspace_id):
        return False
    entries = _entries(session, workspace_id, operation)
    if "capture" not in entries or "refund" in entries:
        return False
    captured = entries["capture"]
    balance = _settle(session, workspace_id=workspace_id, charged=captured.amount, held=0)
    _add_entry(
        session,
        workspace_id,
        operation,
        "refund",
        balance,
        amount=-captured.amount,
        service=captured.service,
        units=-captured.units,
        key_id=captured.key_id,
    )
    return True


def renew_holds(session: Transaction, operations: Collection[str], expires_at: datetime) -> int:
    """Extends the holds of operations, except those being settled; returns how many."""
    held = (
        select(_HOLD.c.operation)
        .where(_HOLD.c.operation.in_(operations))
        .with_for_update(skip_locked=True)
    )
    renewed = update(_HOLD).where(_HOLD.c.operation.in_(held)).values(expires_at=expires_at)
    return change_rows(session, renewed)


def release_expired(session: Transaction, now: datetime) -> int:
    """Releases some holds that expired before they were settled; returns how many."""
    expired = (
        select(_HOLD.c.operation)
        .where(_HOLD.c.expires_at <= now)
        .order_by(_HOLD.c.expires_at)
        .limit(EXPIRED_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    return _release_holds(session, expired, "expire")


def release_named(session: Transaction, operations: Collection[str] | Select[str]) -> int:
    """Releases the holds of these operations; returns how many."""
    return _release_holds(session, operations, "release")


def usage(
    session: Transaction, workspace_id: int, first: date, last: date, by_key: bool = False
) -> list[DayOfUsage]:
    """Sums usage from `first` to `last`, inclusive, by day, service and, if asked, by API key.
    Refunded work is left out. Returns at most one more than MOST_SUMS."""
    groups = (_DAY.c.day, _DAY.c.service, _DAY.c.key_id if by_key else null())
    sums = (_DAY.c.units, _DAY.c.captures - _DAY.c.refunds, -_DAY.c.amount)
    query = (
        select(*groups, *(func.sum(column) for column in sums))
        .where(
            _DAY.c.workspace_id == workspace_id,
            _DAY.c.day.between(first, last),
            _DAY.c.captures + _DAY.c.refunds > 0,
        )
        .group_by(*groups[: 2 + by_key])
        .order_by(*groups[: 2 + by_key])
        .limit(MOST_SUMS + 1)
    )
    return [DayOfUsage(*row[:3], *map(int, row[3:])) for row in session.connection().execute(query)]


def discrepancies(session: Transaction) -> list[Discrepancy]:
    """Finds accounts that differ from the sum of their days, or of their open holds."""
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
    amount = func.coalesce(entries.c.amount, none)
    held = func.coalesce(entries.c.held, none)
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


def _settle(session: Transaction, *, workspace_id: int, charged: int, held: int) -> int:
    """Subtracts `charged` from the balance and `held` from the holds; returns the balance."""
    values = {"account": workspace_id, "charged": charged, "kept": held}
    balance: int = session.connection().execute(_SETTLE, values).scalar_one()
    return balance


def _release_holds(session: Transaction, operations: Any, kind: str) -> int:
    """Deletes the holds and adds entries for their end; returns how many."""
    taken = delete(_HOLD).where(_HOLD.c.operation.in_(operations)).returning(_HOLD)
    of_workspace: dict[int, list[Any]] = defaultdict(list)
    for row in session.connection().execute(taken).all():
        of_workspace[row.workspace_id].append(row)
    for workspace_id, ended in sorted(of_workspace.items()):
        held = sum(row.amount for row in ended)
        balance = _settle(session, workspace_id=workspace_id, charged=0, held=held)
        for row in ended:
            others = {"held": -row.amount, "service": row.service, "key_id": row.key_id}
            _add_entry(session, workspace_id, row.operation, kind, balance, **others)
    return sum(map(len, of_workspace.values()))


def lock_account(session: Transaction, workspace_id: int) -> bool:
    """Locks the account until the end of the transaction; False without one."""
    query = (
        select(_ACCOUNT.c.workspace_id)
        .where(_ACCOUNT.c.workspace_id == workspace_id)
        .with_for_update()
    )
    return session.connection().execute(query).scalar() is not None


def _attempts(
    session: Transaction, workspace_id: int, name: str, *, releases: bool = False
) -> Iterator[tuple[dict[str, set[str]], str | None]]:
    """Yields attempts of an idempotent request in groups: the kinds of entries by operation, and
    the first operation without entries, which is the next attempt."""
    query = select(_ENTRY.c.operation, _ENTRY.c.kind)
    for first in range(1, MOST_ATTEMPTS, ATTEMPTS):
        names = [f"{name}.{number}" for number in range(first, first + ATTEMPTS)]
        if releases:  # waits for a concurrent capture, so that its entry is read below
            release_named(session, names)
        mine = (_ENTRY.c.workspace_id == workspace_id, _ENTRY.c.operation.in_(names))
        kinds = defaultdict[str, set[str]](set)
        for operation, kind in session.connection().execute(query.where(*mine)):
            kinds[operation].add(kind)
        yield kinds, next((free for free in names if free not in kinds), None)
        if len(kinds) < ATTEMPTS:
            return


def _entries(session: Transaction, workspace_id: int, operation: str) -> dict[str, Any]:
    """Reads the entries of an operation, by kind."""
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
    **others: int | str,
) -> None:
    """`others` are the columns that have defaults: amount, held, service, units and key_id."""
    values = {
        "workspace_id": workspace_id,
        "operation": operation,
        "kind": kind,
        "balance_after": balance_after,
        "created_at": utc_now(),
    }
    session.connection().execute(_ADD_ENTRY, values | others)
