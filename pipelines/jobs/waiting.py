"""Says why queued work waits: custom voices and jobs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from sqlmodel import Session

from configs.schema.jobs import WorkConfig
from db.jobs import queue
from db.jobs.jobs import IN_WORK
from db.jobs.queue import W
from db.voices.voices import Voice

STILL = timedelta(minutes=2)  # time without progress that needs an explanation


def reasons_to_wait(
    session: Session, of: type[W], rows: Sequence[W], now: datetime, work: WorkConfig
) -> dict[UUID, str]:
    """Returns a sentence for each unfinished row that no process works on, or that makes no
    progress, by its id."""
    unfinished = [row for row in rows if row.status in IN_WORK]
    if not unfinished:
        return {}
    kind = "voice" if of is Voice else "job"
    running = len(queue.held_leases(session, of, now))
    reasons: dict[UUID, str] = {}
    for row in unfinished:
        lasts = row.lease_until is not None and row.lease_until > now
        if row.lease is not None and lasts:
            if row.tried_since is not None and row.tried_since < now - STILL:
                reasons[row.id] = (
                    f"no progress since {_moment(row.tried_since)}: other work has the cores or the"
                    " memory of the machine, or a model that it needs is not ready"
                )
        elif row.lease_until is not None and lasts:
            reasons[row.id] = (
                f"it was interrupted, and is tried again after {_moment(row.lease_until)}"
            )
        elif row.status == "fetching":
            reasons[row.id] = "its recording is fetched when earlier recordings have been fetched"
        elif running >= work.at_once:
            reasons[row.id] = f"its turn has not come: other {kind}s are in progress"
        else:
            reasons[row.id] = "no worker has begun it"
    return reasons


def _moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
