"""Queue of jobs, for the processes that work on them: their files, progress and completion."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlmodel import Session

from configs.schema.jobs import JobsConfig
from db.audit import SERVICE, audit
from db.billing import ledger
from db.database import utc_now
from db.jobs import jobs
from db.jobs.jobs import BATCH, UNFINISHED, Job, JobFile
from db.jobs.queue import release_lines
from db.webhooks import EventKind, NewEvent, callback_of
from pipelines.billing.billing import Service, capture_row, release_row
from pipelines.billing.operation import Operation
from pipelines.errors import SERVICE_FAULTS, InsufficientCredit, public_error
from pipelines.jobs.leases import HOLD, LeasedQueue, until_available
from pipelines.storage.files import Content
from telemetry import metrics

SERVICES: dict[str, Service] = {"transcription": "stt", "speech": "tts", BATCH: "chat"}


class LeaseLost(Exception):
    """The job was deleted, or another process has its lease."""


@dataclass(eq=False, repr=False)
class JobQueue(LeasedQueue[Job]):
    """Queue of jobs. Methods raise DatabaseUnavailable; with a claimed job, also LeaseLost."""

    _work: JobsConfig

    of_table = Job
    given_up = "the job failed and can be tried again; only its stored results are charged"

    async def files(self, claimed: Job, kind: str) -> list[JobFile]:
        """Lists the files of a kind, in order."""
        return await self._database.read(jobs.files_of, claimed.id, kind)

    async def read(self, job: Job, file: JobFile) -> bytes:
        """Reads a file of a job. Raises NotFound if it was deleted, or StorageUnavailable."""
        return await self._files.read(job.workspace_id, file.file_id)

    async def joined(self, job: Job, kind: str) -> AsyncGenerator[bytes, None]:
        """Yields the contents of all files of a kind, such as the parts of a recording."""
        for part in await self.files(job, kind):
            async for piece in self.pieces(job, part.file_id):
                yield piece

    async def pieces(self, job: Job, file_id: str) -> AsyncGenerator[bytes, None]:
        """Yields a stored file of the job's workspace. Raises NotFound or StorageUnavailable."""
        file = await self._files.find(job.workspace_id, file_id)
        async for piece in self._files.pieces(file, 0, file.size):
            yield piece

    async def keep_lease(self, claimed: Job) -> bool:
        """Renews the lease. Raises StorageUnavailable if a disk of temporary files is low."""
        await self._files.space.check()
        return await super().keep_lease(claimed)

    def decoding(self, claimed: Job, most_s: float) -> AbstractAsyncContextManager[float]:
        """Wraps decoding like `Billing.decoding`, unless the price is held already."""
        if claimed.held is not None:
            return nullcontext(most_s)
        payer = self._billing.payer(claimed.workspace_id, None, None)
        return self._billing.decoding(claimed.workspace_id, 0, most_s, payer)

    def payer(self, job: Job, name: str | None = None) -> Operation:
        return self._billing.payer(job.workspace_id, job.key_id or None, name)

    async def hold(self, claimed: Job, units: int) -> None:
        """Holds the price of the whole job, once. Raises InsufficientCredit."""
        service = SERVICES[claimed.kind]
        cost = 0 if self.payer(claimed).is_free else self._billing.cost(service, units)
        expires_at = utc_now() + HOLD

        def hold(session: Session, row: Job) -> None:
            if row.held is None and not ledger.hold(
                session,
                workspace_id=row.workspace_id,
                operation=row.operation,
                service=service,
                amount=cost,
                expires_at=expires_at,
                key_id=row.key_id,
            ):
                raise InsufficientCredit("the job costs more than the credit of the workspace")
            row.held = row.held or units

        _require(await until_available(partial(self._change, claimed, hold)))

    async def keep(
        self,
        claimed: Job,
        kind: str,
        number: int,
        data: Content,
        seconds: float = 0.0,
        units: int = 0,
        progress: float = 0.0,
    ) -> None:
        """Stores a part of the recording or the result with its price, so that it is done once."""

        def keep(session: Session, row: Job, stored: dict[str, str]) -> None:
            is_again = session.get(JobFile, (row.id, kind, number)) is not None
            self._keep(session, row, stored, number, seconds)
            if is_again:  # the database's reply to the first call was lost
                return
            row.seconds += seconds
            row.units = min(row.units + units, row.held or 0)
            self._advance(claimed, row, progress)

        await self._store_result(claimed, {kind: data}, keep)
        metrics.job_audio_seconds.labels(claimed.kind).inc(seconds)

    async def keep_lines(
        self, claimed: Job, number: int, answers: Sequence[bytes], failures: Sequence[bytes]
    ) -> None:
        """Stores answers and failures of a batch; `number` is the index of their first line."""
        count = {"result": len(answers), "failed": len(failures)}
        parts = {"result": b"".join(answers) or None, "failed": b"".join(failures) or None}

        def keep(session: Session, row: Job, stored: dict[str, str]) -> None:
            for kind, file_id in stored.items():
                self._keep(session, row, {kind: file_id}, number, count[kind])
            row.units = number + len(answers) + len(failures)
            self._advance(claimed, row, row.units / row.parts)

        await self._store_result(claimed, parts, keep)

    async def queue(self, claimed: Job, status: str) -> None:
        """Queues the job for its next stage: "fetching" or "processing" of its recording."""

        def queue(_: object, row: Job) -> None:
            row.status = status
            row.attempt = 0
            row.lease = row.lease_until = row.tried_since = None

        await self._change(claimed, queue)

    async def is_cancelled(self, claimed: Job) -> bool:
        if (row := await self.claimed(claimed.id, claimed.lease or "")) is None:
            raise LeaseLost
        return row.status == "cancelling"

    async def end_batch(self, claimed: Job, status: str) -> None:
        """Ends a batch with its stored results, as "cancelled" or "expired"."""
        await self._change(claimed, lambda session, row: self._end(session, row, status))

    async def complete(
        self,
        claimed: Job,
        speech: Path | None = None,
        media_type: str = "",
        answer: dict[str, Any] | None = None,
        chapters: bytes | None = None,
    ) -> None:
        """Completes the job and charges for it. `speech` is the file that replaces its results,
        with its `chapters` as JSON; `answer` is sent to its callback, if it has one."""

        def complete(session: Session, row: Job, stored: dict[str, str]) -> None:
            if stored:
                jobs.drop_files(session, row.id, "result")
            self._keep(session, row, stored)
            row.progress = 1.0
            self._end(session, row, "completed", answer)

        parts = {"speech": speech, "chapters": chapters}
        await self._store_result(claimed, parts, complete, media_type)
        await self._delete_expired()

    async def fail(self, claimed: Job, error: Exception) -> None:
        """Fails the job, if the lease still holds, with the public form of the error."""
        code, reason = public_error(error)
        await self._change(claimed, lambda session, row: self._fail(session, row, code, reason))

    async def _store_result(
        self,
        claimed: Job,
        parts: Mapping[str, Content | None],
        change: Callable[[Session, Job, dict[str, str]], None],
        media_type: str = "application/octet-stream",
    ) -> None:
        """Stores a result like `_with_files`, with retries. Raises LeaseLost."""
        call = partial(self._with_files, claimed, parts, change, media_type)
        _require(await until_available(call))

    def _fail(self, session: Session, row: Job, error: str, reason: str) -> None:
        if row.status == "cancelling":
            return self._end(session, row, "cancelled")
        row.error = error
        row.reason = reason
        self._end(session, row, "failed")

    def _end(
        self, session: Session, row: Job, status: str, answer: dict[str, Any] | None = None
    ) -> None:
        """Ends the job, drops its input, and sends the answer or error to its callback."""
        self._settle(session, row, charges=status == "completed" or is_due(row))
        if row.kind == BATCH:
            release_lines(session, row)
        row.status = status
        row.finished_at = utc_now()
        row.lease = row.lease_until = row.estimated_completion = None
        obsolete_kinds = ["part"]
        if row.kind == "speech" and status == "failed":
            obsolete_kinds.append("result")
        if row.kind != BATCH:  # a batch is shown with its options
            obsolete_kinds.append("options")
        jobs.drop_files(session, row.id, *obsolete_kinds)
        session.flush()
        kind: EventKind = "job.completed" if status == "completed" else "job.failed"
        data: dict[str, Any] = {"id": str(row.id), "type": row.kind, "name": row.name}
        data |= {"status": status, "duration": round(row.seconds, 3)}
        data |= {"error": row.error, "message": row.reason}
        events = [NewEvent(kind, data)]
        if (callback := callback_of(session, row.id)) is not None:
            events.append(NewEvent(kind, answer or data, callback))
        self._billing.add_events(session, row.workspace_id, tuple(events))
        metrics.jobs_ended.labels(row.kind, status).inc()
        audit(session, row.workspace_id, kind, SERVICE, str(row.id))

    def _advance(self, claimed: Job, row: Job, progress: float) -> None:
        """Notes the progress of an attempt, and estimates the completion from it."""
        assert claimed.lease_until, "a claimed job has a lease"
        elapsed = utc_now() - claimed.lease_until + timedelta(seconds=self._work.lease_s)
        remaining = elapsed * ((1.0 - progress) / max(progress - claimed.progress, 0.001))
        if progress > row.progress:
            row.progress = progress
            row.attempt = 1
            row.tried_since = None
        row.estimated_completion = utc_now() + remaining if progress else None

    def _settle(self, session: Session, row: Job, *, charges: bool) -> None:
        """Charges for the finished units, or releases the hold."""
        service = SERVICES[row.kind]
        if row.held is not None and charges:
            cost = self._billing.cost(service, row.units)
            capture_row(session, row, service, cost=cost, units=row.units)
        elif row.held is not None and row.status in UNFINISHED:
            release_row(session, row, service)

    def _keep(
        self,
        session: Session,
        job: Job,
        stored: dict[str, str],
        number: int = 1,
        seconds: float = 0.0,
    ) -> None:
        """Assigns stored files to the job, in place of those with the same kind and number."""
        for kind, file_id in stored.items():
            new = JobFile(job_id=job.id, kind=kind, number=number, file_id=file_id, seconds=seconds)
            jobs.keep_job_file(session, new)


def is_due(row: Job) -> bool:
    """Whether the work of a failed job is charged: if its owner caused the failure."""
    return row.units > 0 and row.error not in (None, *SERVICE_FAULTS)


def _require(done: bool) -> None:
    if not done:
        raise LeaseLost
