"""Compares the sums of days with the sums of their entries, some days at a time, since the database
ends statements that take too long."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import Date, case, except_, func, select, union
from sqlmodel import col

from db.billing.tables import Account, LedgerDay, LedgerEntry
from db.database import Transaction

AT_ONCE = timedelta(days=31)
_ENTRY_DAY = func.date(LedgerEntry.created_at, type_=Date)


@dataclass(frozen=True, slots=True)
class CheckedDays:
    """Result for some days of a workspace, and where to continue."""

    wrong: list[date]
    following: date


def account_ids(session: Transaction) -> list[int]:
    """Lists the ids of all workspaces with an account, in order."""
    query = select(col(Account.workspace_id)).order_by(col(Account.workspace_id))
    return list(session.connection().execute(query).scalars())


def check_days(session: Transaction, workspace_id: int, since: date) -> CheckedDays | None:
    """Checks AT_ONCE days, from the first day since `since` that has entries; None without such a
    day."""
    first = _first_day(session, workspace_id, since)
    if first is None:
        return None
    following = first + AT_ONCE
    entries = (
        select(
            _ENTRY_DAY.label("day"),
            col(LedgerEntry.service),
            col(LedgerEntry.key_id),
            func.sum(LedgerEntry.amount),
            func.sum(LedgerEntry.held),
            func.sum(LedgerEntry.units),
            func.sum(case((col(LedgerEntry.kind) == "capture", 1), else_=0)),
            func.sum(case((col(LedgerEntry.kind) == "refund", 1), else_=0)),
        )
        .where(
            col(LedgerEntry.workspace_id) == workspace_id,
            col(LedgerEntry.created_at) >= _midnight(first),
            col(LedgerEntry.created_at) < _midnight(following),
        )
        .group_by(_ENTRY_DAY, col(LedgerEntry.service), col(LedgerEntry.key_id))
        .cte()  # read twice, but summed once
    )
    sums = select(
        col(LedgerDay.day),
        col(LedgerDay.service),
        col(LedgerDay.key_id),
        col(LedgerDay.amount),
        col(LedgerDay.held),
        col(LedgerDay.units),
        col(LedgerDay.captures),
        col(LedgerDay.refunds),
    ).where(
        col(LedgerDay.workspace_id) == workspace_id,
        col(LedgerDay.day) >= first,
        col(LedgerDay.day) < following,
    )
    # One statement sees the entries and sums of one moment, so the account needs no lock.
    summed = select(entries)
    differences = (except_(summed, sums).subquery(), except_(sums, summed).subquery())
    days = union(*(select(rows.c.day) for rows in differences))
    return CheckedDays(sorted(session.connection().execute(days).scalars()), following)


def _first_day(session: Transaction, workspace_id: int, since: date) -> date | None:
    entry_day = select(func.date(func.min(LedgerEntry.created_at), type_=Date)).where(
        col(LedgerEntry.workspace_id) == workspace_id,
        col(LedgerEntry.created_at) >= _midnight(since),
    )
    summed_day = select(func.min(LedgerDay.day)).where(
        col(LedgerDay.workspace_id) == workspace_id, col(LedgerDay.day) >= since
    )
    days = session.connection().execute(union(entry_day, summed_day)).scalars()
    return min(filter(None, days), default=None)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
