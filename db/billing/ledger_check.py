"""Compares the sums of days with the sums of their entries, some days at a time."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from operator import attrgetter

from sqlalchemy import case, func, select
from sqlmodel import Session, col

from db.billing.ledger import lock_account
from db.billing.tables import Account, LedgerDay, LedgerEntry

AT_ONCE = timedelta(days=31)
_SUMS = attrgetter("amount", "held", "units", "captures", "refunds")


@dataclass(frozen=True, slots=True)
class CheckedDays:
    """Result for some days of a workspace, and where to continue."""

    wrong: list[date]
    following: date


def accounts_after(session: Session, workspace_id: int, limit: int) -> list[int]:
    """Lists the next accounts in the order of their workspaces' ids."""
    query = (
        select(col(Account.workspace_id))
        .where(col(Account.workspace_id) > workspace_id)
        .order_by(col(Account.workspace_id))
        .limit(limit)
    )
    return list(session.connection().execute(query).scalars())


def check_days(session: Session, workspace_id: int, since: date) -> CheckedDays | None:
    """Checks AT_ONCE days from the first with entries since `since`; None when there is none."""
    lock_account(session, workspace_id)  # so that entries and sums are consistent
    first = _first_day(session, workspace_id, since)
    if first is None:
        return None
    following = first + AT_ONCE
    entries = _sums_of_entries(session, workspace_id, first, following)
    sums = _sums_of_days(session, workspace_id, first, following)
    wrong = {day for (day, *_), _ in entries.items() ^ sums.items()}
    return CheckedDays(sorted(wrong), following)


def _first_day(session: Session, workspace_id: int, since: date) -> date | None:
    entry = (
        select(col(LedgerEntry.created_at))
        .where(
            col(LedgerEntry.workspace_id) == workspace_id,
            col(LedgerEntry.created_at) >= _midnight(since),
        )
        .order_by(col(LedgerEntry.created_at))
        .limit(1)
    )
    summed = select(func.min(LedgerDay.day)).where(
        col(LedgerDay.workspace_id) == workspace_id, col(LedgerDay.day) >= since
    )
    moment: datetime | None = session.connection().execute(entry).scalar()
    days: list[date | None] = [
        None if moment is None else moment.date(),
        session.connection().execute(summed).scalar(),
    ]
    return min((day for day in days if day is not None), default=None)


def _sums_of_entries(
    session: Session, workspace_id: int, first: date, end: date
) -> dict[tuple[date, str, int], tuple[int, ...]]:
    day, kind = func.date(LedgerEntry.created_at), col(LedgerEntry.kind)
    query = (
        select(
            day,
            col(LedgerEntry.service),
            col(LedgerEntry.key_id),
            func.sum(LedgerEntry.amount),
            func.sum(LedgerEntry.held),
            func.sum(LedgerEntry.units),
            func.sum(case((kind == "capture", 1), else_=0)),
            func.sum(case((kind == "refund", 1), else_=0)),
        )
        .where(
            col(LedgerEntry.workspace_id) == workspace_id,
            col(LedgerEntry.created_at) >= _midnight(first),
            col(LedgerEntry.created_at) < _midnight(end),
        )
        .group_by(day, col(LedgerEntry.service), col(LedgerEntry.key_id))
    )
    return {
        (date.fromisoformat(str(day)), service, key): tuple(map(int, sums))
        for day, service, key, *sums in session.connection().execute(query)
    }


def _sums_of_days(
    session: Session, workspace_id: int, first: date, end: date
) -> dict[tuple[date, str, int], tuple[int, ...]]:
    query = select(LedgerDay).where(
        col(LedgerDay.workspace_id) == workspace_id,
        col(LedgerDay.day) >= first,
        col(LedgerDay.day) < end,
    )
    return {
        (row.day, row.service, row.key_id): _SUMS(row)
        for row in session.connection().execute(query)
    }


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
