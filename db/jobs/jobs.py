"""Jobs of workspaces and their files. The row of a job is also its entry in the queue. Jobs of
other workspaces are treated as nonexistent."""

from collections.abc import Collection
from datetime import UTC, date, datetime, time
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Index,
    Text,
    and_,
    case,
    delete,
    exists,
    func,
    or_,
    tuple_,
)
from sqlmodel import Field, Session, SQLModel, col, select

from db.accounts import workspace_reference
from db.database import UtcDateTime, change_rows, page_of, utc_now
from db.files import StoredFile, expire_these_files
from db.webhooks import Delivery, Event, Webhook

IN_WORK = ("fetching", "processing", "cancelling")
"""States in which a process may have the lease."""

UNFINISHED = ("uploading", *IN_WORK)
BATCH = "batch"
REQUEST = "request"
KINDS = ("options", "part", "result", "failed", "speech", "chapters", REQUEST)
Stage = Literal["queued", "processing", "completed", "failed"]
AT_ONCE = 100  # jobs deleted in one call


class Job(SQLModel, table=True):
    """A transcription of a long recording, the speech of a long text, or a batch of chats."""

    __table_args__ = (
        Index("ix_job_workspace_id_created_at", "workspace_id", "created_at"),
        Index("ix_job_status_created_at", "status", "created_at"),
    )

    id: UUID = Field(primary_key=True)
    workspace_id: int = Field(sa_column=workspace_reference())
    kind: str = Field(max_length=16)  # transcription, speech or BATCH
    name: str  # name of its file, or its title
    parts: int = 1  # parts of the recording, or lines of the batch
    # Or uploading, fetching (from its address), completed, failed; a batch may also be cancelling
    # (its last lines are answered), cancelled or expired.
    status: str = Field(default="processing", max_length=16)
    progress: float = 0.0  # 0 to 1
    estimated_completion: datetime | None = Field(default=None, sa_type=UtcDateTime)
    created_at: datetime = Field(default_factory=utc_now, sa_type=UtcDateTime)
    finished_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    error: str | None = Field(default=None, max_length=40)  # error code of a failure
    reason: str | None = Field(default=None, sa_type=Text)  # message of the error
    # Work done: `seconds` of audio, and charged `units` (milliseconds, characters or lines).
    seconds: float = 0.0
    units: int = 0
    held: int | None = None  # units whose price is held; None before a hold
    key_id: int = Field(default=0, sa_type=BigInteger)  # API key that pays, or 0
    details: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # shown in lists of jobs

    # The process with the lease works on it; an expired lease can be taken over.
    operation: str = Field(max_length=64)  # name of its hold in the ledger
    lease: str | None = Field(default=None, max_length=40)
    lease_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attempt: int = 0  # failed attempts since the last progress, plus a running one
    # Since when attempts have made no progress.
    tried_since: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def is_in_work(self, now: datetime) -> bool:
        """Whether a process has the lease."""
        return bool(self.lease and self.lease_until and self.lease_until > now)

    @staticmethod
    def stage_at(now: datetime) -> ColumnElement[Stage]:
        """Returns the stage of a transcription, in SQL: queued before its first turn of work."""
        has_begun = or_(
            col(Job.progress) > 0, and_(col(Job.lease).is_not(None), col(Job.lease_until) > now)
        )
        ended = col(Job.status).in_(("completed", "failed"))
        return case((ended, col(Job.status)), (has_begun, "processing"), else_="queued")


class JobFile(SQLModel, table=True):
    """A stored file of a job. Its kind is options, part (of the recording, or lines of a batch),
    result, failed (lines), speech, chapters (of the speech), or request (what a client of another
    API asked for, which stays after the end)."""

    __tablename__ = "job_file"

    job_id: UUID = Field(foreign_key="job.id", ondelete="CASCADE", primary_key=True)
    kind: str = Field(max_length=16, primary_key=True)
    number: int = Field(primary_key=True)  # order within the kind
    file_id: str = Field(max_length=40)
    seconds: float = 0.0  # audio that a result covers; for a batch the number of lines


HAS_REQUEST = exists().where(col(JobFile.job_id) == Job.id, col(JobFile.kind) == REQUEST)


def job_of(
    session: Session, owner: int, job_id: UUID, kinds: Collection[str], *, lock: bool = False
) -> Job | None:
    """Finds a job; None when the workspace has no such job of those kinds."""
    query = select(Job).where(Job.id == job_id, Job.workspace_id == owner, col(Job.kind).in_(kinds))
    return session.exec(query.with_for_update() if lock else query).one_or_none()


def jobs_page(
    session: Session, owner: int, kinds: Collection[str], page: int, limit: int
) -> tuple[list[Job], int]:
    """Lists one page of a workspace's jobs, newest first, and their number. `page` counts from
    1."""
    query = select(Job).where(Job.workspace_id == owner, col(Job.kind).in_(kinds))
    return page_of(session, query.order_by(col(Job.created_at).desc(), col(Job.id)), page, limit)


def batches_after(
    session: Session,
    owner: int,
    last: tuple[datetime, UUID] | None,
    limit: int,
    *,
    begun: bool,
    oldest_first: bool = False,
) -> list[Job]:
    """Lists a workspace's batches after the place `last`, newest first unless `oldest_first`.
    `begun` omits files without a batch."""
    place = tuple_(col(Job.created_at), col(Job.id))
    query = select(Job).where(Job.workspace_id == owner, Job.kind == BATCH)
    if last is not None:
        query = query.where(place > last if oldest_first else place < last)
    if begun:
        query = query.where(Job.status != "uploading")
    columns = (col(Job.created_at), col(Job.id))
    in_order = columns if oldest_first else [column.desc() for column in columns]
    return list(session.exec(query.order_by(*in_order).limit(limit)))


def requested_jobs(
    session: Session,
    owner: int,
    limit: int,
    *,
    now: datetime,
    before: Job | None = None,
    after: Job | None = None,
    created_on: date | None = None,
    stage: Stage | None = None,
) -> list[tuple[Job, Stage]]:
    """Lists a workspace's jobs that have a request, with their stages, newest first. With `after`,
    takes the oldest of the jobs that are newer. `created_on` is a day (UTC)."""
    stage_now = Job.stage_at(now)
    query = select(Job, stage_now).where(Job.workspace_id == owner, HAS_REQUEST)
    place = tuple_(col(Job.created_at), col(Job.id))
    if before is not None:
        query = query.where(place < (before.created_at, before.id))
    if after is not None:
        query = query.where(place > (after.created_at, after.id))
    if created_on is not None:
        first = datetime.combine(created_on, time.min, UTC)
        last = datetime.combine(created_on, time.max, UTC)
        query = query.where(col(Job.created_at).between(first, last))
    if stage is not None:
        query = query.where(stage_now == stage)
    columns = col(Job.created_at), col(Job.id)
    order = columns if after is not None else [column.desc() for column in columns]
    rows = list(session.exec(query.order_by(*order).limit(limit)))
    return rows[::-1] if after is not None else rows


def stage_of(session: Session, job_id: UUID, now: datetime) -> Stage:
    """Reads the stage of a transcription that exists."""
    return session.exec(select(Job.stage_at(now)).where(Job.id == job_id)).one()


def bytes_of(session: Session, job_id: UUID, kind: str) -> int:
    """Sums the bytes of a job's stored files of a kind."""
    query = select(func.sum(StoredFile.size)).join(JobFile, StoredFile.id == JobFile.file_id)  # type: ignore[arg-type]
    size = session.exec(query.where(JobFile.job_id == job_id, JobFile.kind == kind)).one()
    return int(size or 0)


def count_unfinished(session: Session, workspace_id: int, *, is_requested: bool) -> int:
    """Counts unfinished jobs, either those that have a request or those that have none."""
    query = select(func.count()).select_from(Job).where(Job.workspace_id == workspace_id)
    query = query.where(HAS_REQUEST if is_requested else ~HAS_REQUEST)
    return session.exec(query.where(col(Job.status).in_(UNFINISHED))).one()


def files_of(session: Session, job_id: UUID, *kinds: str) -> list[JobFile]:
    """Lists a job's files of some kinds, in order."""
    query = select(JobFile).where(JobFile.job_id == job_id, col(JobFile.kind).in_(kinds))
    return list(session.exec(query.order_by(col(JobFile.kind), col(JobFile.number))))


def keep_job_file(session: Session, file: JobFile) -> None:
    """Adds a file, or replaces the file of the same kind and number."""
    if (old := session.get(JobFile, (file.job_id, file.kind, file.number))) is not None:
        expire_these_files(session, [old.file_id], utc_now())
    session.merge(file)
    session.flush()


def drop_files(session: Session, job_id: UUID, *kinds: str) -> None:
    """Expires the files of those kinds, and deletes their rows."""
    dropped = files_of(session, job_id, *kinds)
    expire_these_files(session, [file.file_id for file in dropped], utc_now())
    for file in dropped:
        session.delete(file)
    session.flush()


def delete_job(session: Session, job: Job) -> None:
    """Deletes a job with its files, its callback and what the callback delivers."""
    drop_files(session, job.id, *KINDS)
    callbacks = select(Webhook.id).where(Webhook.job_id == job.id)
    delivered = select(Delivery.event_id).where(col(Delivery.webhook_id).in_(callbacks))
    event_ids = session.exec(delivered).all()
    change_rows(session, delete(Webhook).where(col(Webhook.job_id) == job.id))
    change_rows(session, delete(Event).where(col(Event.id).in_(event_ids)))
    session.delete(job)


def delete_old_jobs(session: Session, ended_before: datetime, begun_before: datetime) -> int:
    """Deletes jobs that ended before `ended_before`, and uploads begun before `begun_before` that
    are still incomplete; returns how many. A file without a batch counts as ended."""
    ended = func.coalesce(Job.finished_at, Job.created_at) < ended_before
    is_upload = and_(col(Job.status) == "uploading", col(Job.kind) != BATCH)
    is_old = or_(ended, and_(is_upload, col(Job.created_at) < begun_before))
    is_idle = col(Job.status).not_in(IN_WORK)
    old = session.exec(select(Job).where(is_old, is_idle).limit(AT_ONCE)).all()
    for job in old:
        delete_job(session, job)
    return len(old)
