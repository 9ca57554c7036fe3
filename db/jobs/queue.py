"""Queues of custom voices to build and of jobs. They are rows of a table, claimed under leases,
with workspaces in turn (round robin)."""

from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, func, select, update

from configs.schema.jobs import JobsConfig, WorkConfig
from db.accounts import Workspace, lock_workspace
from db.billing.ledger import release_named
from db.billing.tables import CreditHold
from db.database import change_rows, is_free
from db.jobs.interleaving import interleave
from db.jobs.jobs import IN_WORK, Job
from db.voices.voices import Voice

W = TypeVar("W", Voice, Job)

Waiting: TypeAlias = sa.Row[UUID, int, float, datetime, datetime | None]
"""Id, workspace, progress, creation time, and last turn of the workspace."""

AHEAD = timedelta(hours=1)  # lead of a new workspace over others
AT_ONCE = 100
NO_ATTEMPT_LEFT = "internal_error"  # error code of work whose attempts all failed
_TURNS = {Voice: Workspace.voice_turn_at, Job: Workspace.job_turn_at}


def free(of: type[W], now: datetime, *states: str) -> sa.ColumnElement[bool]:
    """Builds the condition of rows of those states, by default "processing", without a valid
    lease."""
    return sa.and_(col(of.status).in_(states or ("processing",)), is_free(of.lease_until, now))


def _can_be_claimed(
    of: type[W], now: datetime, work: WorkConfig, status: str = "processing"
) -> sa.ColumnElement[bool]:
    left = sa.or_(col(of.attempt) < work.most_attempts, col(of.lease).is_not(None))
    return sa.and_(free(of, now, status), left)


def in_turn(session: Session, of: type[W], now: datetime, work: WorkConfig) -> list[Waiting]:
    """Lists rows that can be claimed, in the order of the queue.

    Workspaces take turns, first the one whose last turn is longest ago. In its turn, a workspace
    gets its row that has waited longest since it was created or gave way. A workspace that never
    had a turn is ranked as if it had one an hour before its work was created. So it goes before
    another workspace only if its work was created less than an hour after the other's last turn.
    """
    since = func.coalesce(col(of.lease_until), col(of.created_at))
    query: Any = (
        sa.select(
            col(of.id),
            col(of.workspace_id),
            col(of.progress),
            col(of.created_at),
            col(_TURNS[of]).label("turn_at"),
        )
        .join(Workspace, col(Workspace.id) == of.workspace_id)
        .where(_can_be_claimed(of, now, work))
        .order_by(since, col(of.id))
    )

    def rank(first: Waiting) -> tuple[datetime, datetime, int]:
        turn_at = first.turn_at or first.created_at - AHEAD
        return turn_at, first.created_at, first.workspace_id

    session.flush()
    # After its turn a workspace is behind all others, so each round has the same order.
    return interleave(
        session.connection().execute(query), owner=attrgetter("workspace_id"), rank=rank
    )


def claim(session: Session, of: type[W], lease: str, now: datetime, work: WorkConfig) -> W | None:
    """Claims the next row under `lease`, a new unique name; None when there is none."""
    for waiting in in_turn(session, of, now, work):
        lock_workspace(session, waiting.workspace_id, shared=True)
        query = select(of).where(of.id == waiting.id, free(of, now))
        row = session.exec(query.with_for_update(skip_locked=True)).one_or_none()
        if row is None:
            continue  # another process has claimed it
        if not _take(session, row, lease, now, work):
            continue
        taken = update(Workspace).where(col(Workspace.id) == row.workspace_id)
        # The workspace is behind the others from here on.
        change_rows(session, taken.values({_TURNS[of]: now}))
        return row
    return None


def claim_fetch(session: Session, lease: str, now: datetime, work: JobsConfig) -> Job | None:
    """Claims the next recording to fetch; None if there is none, or if all workspaces are at their
    limit. Of the recordings of the workspaces that fetch the fewest, it is the one that has waited
    longest since it was created or gave way."""
    others = aliased(Job)
    running = (
        select(func.count())
        .where(others.workspace_id == Job.workspace_id, others.status == "fetching")
        .where(col(others.lease_until) > now)
        .scalar_subquery()
    )
    waiting = select(Job.id, Job.workspace_id).where(
        _can_be_claimed(Job, now, work, "fetching"), running < work.fetches_of_workspace
    )
    since = func.coalesce(col(Job.lease_until), col(Job.created_at))
    first = session.exec(waiting.order_by(running, since).limit(1)).one_or_none()
    if first is None:
        return None
    job_id, workspace_id = first
    lock_workspace(session, workspace_id, shared=True)
    query = select(Job).where(Job.id == job_id, free(Job, now, "fetching"))
    row = session.exec(query.with_for_update(skip_locked=True)).one_or_none()
    return row if row is not None and _take(session, row, lease, now, work) else None


def _take(session: Session, row: Voice | Job, lease: str, now: datetime, work: WorkConfig) -> bool:
    """Sets the lease; False while the row pauses. An attempt whose lease merely lapsed is not
    counted as failed."""
    session.add(row)
    lease_s = timedelta(seconds=work.lease_s)
    lost_at = (row.lease_until or now) - lease_s  # last sign of life of the lease's process
    pauses_until = lost_at + pause_after(row, lost_at, work)
    if row.lease is not None and pauses_until > now:
        row.lease = None
        row.lease_until = pauses_until
        row.attempt -= 1
        return False
    row.attempt += row.lease is None
    row.lease = lease
    row.lease_until = now + lease_s
    row.tried_since = row.tried_since or now
    return True


def pause_after(
    row: Voice | Job, lost_at: datetime, work: WorkConfig, share: float = 1.0
) -> timedelta:
    """Returns the pause of a row after an attempt that does not count. It is a share of the time
    without progress, so that work that takes its machine down is begun 13 times in three days, not
    every other minute."""
    still = lost_at - (row.tried_since or lost_at)
    return max(timedelta(seconds=work.lease_s), share * still)


def held_leases(session: Session, of: type[W], now: datetime) -> set[tuple[UUID, str]]:
    """Reads ids and leases of rows that are being worked on."""
    query = select(of.id, of.lease).where(of.status == "processing", col(of.lease_until) > now)
    return {(row_id, lease) for row_id, lease in session.exec(query) if lease is not None}


def count_free(session: Session, of: type[W], now: datetime, work: WorkConfig) -> int:
    """Counts the rows that can be claimed."""
    claimable = select(func.count()).select_from(of).where(_can_be_claimed(of, now, work))
    return session.exec(claimable).one()


def row_under(session: Session, of: type[W], row_id: UUID, lease: str) -> W | None:
    """Finds a row that is claimed under that lease, which may have expired."""
    return session.exec(select(of).where(_under_lease(of, row_id, lease))).one_or_none()


def _under_lease(of: type[W], row_id: UUID, lease: str | None) -> sa.ColumnElement[bool]:
    return sa.and_(
        col(of.id) == row_id, col(of.lease) == (lease or ""), col(of.status).in_(IN_WORK)
    )


def renew_lease(session: Session, claimed: W, news: dict[str, Any]) -> bool:
    """Writes columns of a claimed row; False if deleted, finished, or claimed by another."""
    of = type(claimed)
    is_it = _under_lease(of, claimed.id, claimed.lease)
    return change_rows(session, update(of).where(is_it).values(news)) > 0


def leased_row(session: Session, claimed: W) -> W | None:
    """Locks a claimed row; None if deleted, finished, or claimed by another."""
    lock_workspace(session, claimed.workspace_id, shared=True)
    of = type(claimed)
    query = select(of).where(_under_lease(of, claimed.id, claimed.lease))
    return session.exec(query.with_for_update()).one_or_none()


def hopeless_rows(
    session: Session, of: type[W], now: datetime, work: WorkConfig
) -> list[tuple[int, UUID]]:
    """Lists workspaces and ids of rows without a lease that have to be given up. They have no
    attempts left, made no progress for too long, waited too long, or are cancelled batches. A row
    has waited too long only if no other was finished meanwhile."""
    query = select(of.workspace_id, of.id).where(_is_hopeless(of, now, work))
    return list(session.exec(query.limit(AT_ONCE)))


def hopeless_row(
    session: Session, of: type[W], workspace_id: int, row_id: UUID, now: datetime, work: WorkConfig
) -> W | None:
    """Locks a row of `hopeless_rows`; None when it no longer is one."""
    lock_workspace(session, workspace_id, shared=True)
    query = select(of).where(of.id == row_id, _is_hopeless(of, now, work))
    return session.exec(query.with_for_update(of=of)).one_or_none()


def _is_hopeless(of: type[W], now: datetime, work: WorkConfig) -> sa.ColumnElement[bool]:
    before = now - timedelta(hours=work.give_up_after_hours)
    other = aliased(of)
    makes_progress = sa.exists().where(
        col(other.finished_at) > before,
        sa.or_(col(other.error).is_(None), col(other.error) != NO_ATTEMPT_LEFT),
    )
    waited = sa.and_(col(of.created_at) < before, ~makes_progress)
    died = sa.and_(col(of.attempt) >= work.most_attempts, col(of.lease).is_(None))
    stuck = sa.or_(col(of.tried_since) < before, col(of.status) == "cancelling")
    return sa.and_(free(of, now, *IN_WORK), sa.or_(waited, died, stuck))


def extend_holds(session: Session, of: type[W], until: datetime, ending_before: datetime) -> int:
    """Extends credit holds of unfinished rows that would expire too early; returns how many."""
    ending = (
        select(CreditHold.operation)
        .join(of, col(of.operation) == CreditHold.operation)
        .where(of.status == "processing", col(CreditHold.expires_at) < ending_before)
        .limit(AT_ONCE)
        .with_for_update(of=CreditHold, skip_locked=True)
    )
    held = update(CreditHold).where(col(CreditHold.operation).in_(ending))
    return change_rows(session, held.values(expires_at=until))


def release_lines(session: Session, batch: Job) -> None:
    """Releases the holds of batch lines that no process answers any more."""
    mine = col(CreditHold.workspace_id) == batch.workspace_id
    lines = col(CreditHold.operation).startswith(f"{batch.operation}-")
    release_named(session, sa.select(col(CreditHold.operation)).where(mine, lines))


def unfinished_operations(session: Session, workspace_id: int) -> list[str]:
    """Lists the operations that hold credit for the workspace's unfinished voices and jobs."""
    voices = select(Voice.operation).where(
        Voice.workspace_id == workspace_id, Voice.status == "processing"
    )
    jobs = select(Job.operation).where(Job.workspace_id == workspace_id, col(Job.held).is_not(None))
    return [*session.exec(voices), *session.exec(jobs.where(Job.status == "processing"))]
