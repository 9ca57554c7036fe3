"""Jobs of workspaces, which create, read and delete them: transcriptions of long recordings, speech
of long texts, batches of chats."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Self
from uuid import UUID

from sqlmodel import Session

from configs.load import load_yaml
from configs.plans import load_plans
from configs.schema.jobs import JobsConfig
from configs.schema.platform import PlansConfig
from configs.settings import Settings
from db.accounts import Workspace, lock_workspace
from db.audit import audit
from db.database import Database, utc_now
from db.deliveries import callback_status
from db.files import expire_these_files
from db.jobs import jobs
from db.jobs.jobs import BATCH, IN_WORK, REQUEST, UNFINISHED, Job, JobFile, Stage
from db.jobs.queue import release_lines
from db.webhooks import Webhook
from pipelines.accounts.authentication import Principal
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation, made_at, place_of
from pipelines.errors import InvalidRequest, NotFound, PlanRequired, StorageUnavailable
from pipelines.jobs.documents.book import CHAPTERS, SpokenChapter
from pipelines.jobs.queue import SERVICES, JobQueue, is_due
from pipelines.jobs.waiting import reasons_to_wait
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files, keep_files
from pipelines.storage.room import check_room, plan_limits

URL_LIFETIME_S = 24 * 3600.0
UPLOAD_S = 24 * 3600.0  # time for which an upload is kept
UPLOAD = "upload"  # kind of its file


@dataclass(frozen=True, slots=True)
class RequestedJob:
    """A job that a client of another API created, with what it asked for."""

    job: Job
    request: bytes
    stage: Stage
    callback_status: int | None  # last status code of the callback's receiver; not in lists


@dataclass(eq=False, repr=False)
class Jobs(JobQueue):
    """Jobs of workspaces. Every method raises DatabaseUnavailable."""

    _plans: PlansConfig

    @classmethod
    def of(cls, settings: Settings, database: Database, encryption: Encryption) -> Self:
        """Makes the jobs of a service, with the store, prices and limits of its configuration."""
        plans = load_plans(settings)
        work = load_yaml(JobsConfig, "jobs")
        encrypt = encryption.encrypt_text
        free = plans.free_workspace_id
        billing = Billing(database, plans.prices, encrypt, free_workspace_id=free)
        return cls(database, Files(settings, database, encryption), billing, work, plans)

    async def check_room(
        self,
        principal: Principal,
        kind: str,
        units: int,
        operation: Operation,
        *,
        is_requested: bool = False,
    ) -> None:
        """Checks storage and credit for a job of at least `units`, before a body is received.
        Raises PlanRequired, StorageLimit, InvalidRequest or InsufficientCredit."""
        owner = principal.workspace_id
        await self._database.read(self._check_plan, owner, is_requested)
        await self._billing.check_credit(owner, SERVICES[kind], units, operation)

    async def create(
        self,
        principal: Principal,
        operation: Operation,
        kind: str,
        name: str,
        options: bytes,
        upload: Path | None = None,
        parts: int = 0,
        *,
        is_fetched: bool = False,
        request: bytes | None = None,
        callback: Webhook | None = None,
        details: dict[str, Any] | None = None,
    ) -> Job:
        """Creates a job, which is queued at once, once its `parts` are uploaded, or once its
        recording is fetched (`is_fetched`).

        `request` is kept as long as the job (`requested`); a workspace may have more unfinished
        jobs with a request than without. `callback` gets the end of the job. `details` are shown in
        lists. A request with an Idempotency-Key that runs again gets the same job. Raises
        PlanRequired, StorageLimit, InvalidRequest or StorageUnavailable."""
        owner = principal.workspace_id
        job = Job(
            id=operation.new_id("job"),
            workspace_id=owner,
            kind=kind,
            name=name,
            parts=parts,
            status="uploading" if parts else "fetching" if is_fetched else "processing",
            key_id=principal.key_id or 0,
            operation="",
            details=details,
        )
        job.created_at = made_at(job.id) or job.created_at
        job.operation = f"job-{job.id}"
        stored = await self._store(owner, {"options": options, "part": upload, REQUEST: request})

        def add(session: Session) -> Job:
            lock_workspace(session, owner)
            if (existing := jobs.job_of(session, owner, job.id, SERVICES)) is not None:
                return existing  # an earlier run of the request began it
            self._check_plan(session, owner, request is not None)
            session.add(job)
            session.flush()
            keep_files(session, owner, stored.values())
            self._keep(session, job, stored)
            if callback is not None:
                callback.job_id = job.id
                session.add(callback)
            audit(session, owner, "job.created", principal.actor, str(job.id))
            return job

        return await self._database.run(add)

    async def check_part(self, principal: Principal, job_id: UUID, number: int) -> None:
        """Checks a part before it is received. Raises NotFound or InvalidRequest."""
        job, _ = await self._find(principal, job_id)
        _check_waits(job, number)

    async def keep_part(self, principal: Principal, job_id: UUID, number: int, path: Path) -> Job:
        """Stores or replaces a part of a recording; the last missing part queues the job. Raises
        NotFound, InvalidRequest, StorageLimit or StorageUnavailable."""
        stored = await self._store(principal.workspace_id, {"part": path})

        def keep(session: Session, job: Job) -> None:
            _check_waits(job, number)
            keep_files(session, job.workspace_id, stored.values())
            self._keep(session, job, stored, number)
            if len(jobs.files_of(session, job.id, "part")) == job.parts:
                job.status = "processing"

        return await self._change_own(principal, job_id, keep)

    async def waits(self, rows: Sequence[Job]) -> dict[UUID, str]:
        """Says why jobs wait (`reasons_to_wait`), by their ids."""
        return await self._database.read(reasons_to_wait, Job, rows, utc_now(), self._work)

    async def page(self, principal: Principal, page: int, limit: int) -> tuple[list[Job], int]:
        """Lists a page of the jobs that the key may use, newest first, and counts all of them."""
        owner = principal.workspace_id
        return await self._database.read(jobs.jobs_page, owner, _kinds(principal), page, limit)

    async def get(
        self, principal: Principal, job_id: UUID
    ) -> tuple[Job, list[int], str | None, list[SpokenChapter]]:
        """Reads a job, the numbers of received parts, and its speech's URL and chapters. Chapters
        are left out while the object store is down. Raises NotFound."""
        job, files = await self._find(principal, job_id, "part", "speech", "chapters")
        url = None
        chapters: list[SpokenChapter] = []
        for file in files:
            if file.kind == "speech":
                url = self._files.url(file.file_id, job.workspace_id, URL_LIFETIME_S)
            elif file.kind == "chapters":
                with suppress(StorageUnavailable):
                    chapters = CHAPTERS.validate_json(await self.read(job, file))
        return job, [part.number for part in files if part.kind == "part"], url, chapters

    def costs(self, job: Job) -> tuple[int, int]:
        """Returns the price of the charged work so far, and what is held for all of it, in
        micro-USD; zeros for a batch, whose lines are charged one by one, and for the owner."""
        if job.held is None or self.payer(job).is_free:
            return 0, 0
        service = SERVICES[job.kind]
        is_charged = job.status != "failed" or is_due(job)
        cost = self._billing.cost(service, job.units) if is_charged else 0
        is_held = job.status in UNFINISHED
        return cost, self._billing.cost(service, job.held) if is_held else 0

    async def results(self, principal: Principal, job_id: UUID) -> list[bytes]:
        """Reads the results of a transcription so far. Raises as `requested`, or InvalidRequest."""
        job, files = await self._find(principal, job_id, "result")
        if job.kind != "transcription":
            raise InvalidRequest("the job is not a transcription and has no transcript")
        return [await self.read(job, file) for file in files]

    async def keep_upload(self, principal: Principal, path: Path) -> str:
        """Stores a recording for UPLOAD_S; returns its id. Raises as `Files.put`."""
        owner = principal.workspace_id
        return await self._files.put(owner, UPLOAD, "application/octet-stream", path, UPLOAD_S)

    async def check_upload(self, principal: Principal, file_id: str) -> None:
        """Checks that an upload is still stored. Raises NotFound."""
        if (await self._files.find(principal.workspace_id, file_id)).kind != UPLOAD:
            raise NotFound("the workspace has no such file")

    async def requested(self, principal: Principal, job_id: UUID) -> RequestedJob:
        """Reads a job that was created with a request. Raises NotFound or StorageUnavailable."""

        def find(session: Session) -> tuple[Job, Stage, JobFile, int | None]:
            job = jobs.job_of(session, principal.workspace_id, job_id, _kinds(principal))
            files = jobs.files_of(session, job_id, REQUEST) if job is not None else []
            if job is None or not files:
                raise NotFound("no transcript of the workspace has that id")
            stage = jobs.stage_of(session, job_id, utc_now())
            return job, stage, files[0], callback_status(session, job_id)

        job, stage, file, status = await self._database.read(find)
        return RequestedJob(job, await self.read(job, file), stage, status)

    async def list_requested(
        self,
        principal: Principal,
        limit: int,
        *,
        before: UUID | None,
        after: UUID | None,
        created_on: date | None,
        stage: Stage | None,
    ) -> list[RequestedJob]:
        """Lists jobs as `requested_jobs` does, without callbacks' status. Raises as `requested`."""

        def read(session: Session) -> list[tuple[Job, Stage, JobFile]]:
            rows = jobs.requested_jobs(
                session,
                principal.workspace_id,
                limit,
                now=utc_now(),
                before=_own(session, principal, before) if before else None,
                after=_own(session, principal, after) if after else None,
                created_on=created_on,
                stage=stage,
            )
            return [
                (row, row_stage, file)
                for row, row_stage in rows
                for file in jobs.files_of(session, row.id, REQUEST)
            ]

        requested: list[RequestedJob] = []
        for job, job_stage, file in await self._database.read(read):
            with suppress(NotFound):  # the job was deleted meanwhile
                requested.append(RequestedJob(job, await self.read(job, file), job_stage, None))
        return requested

    async def begin_batch(self, principal: Principal, job_id: UUID, options: bytes) -> Job:
        """Starts the batch of a file. Raises NotFound, InvalidRequest if it has one already, or as
        `Files.put`."""
        stored = await self._store(principal.workspace_id, {"options": options})

        def begin(session: Session, job: Job) -> None:
            if job.kind != BATCH or job.status != "uploading":
                raise InvalidRequest("input_file_id: the file has a batch already; upload it again")
            keep_files(session, job.workspace_id, stored.values())
            self._keep(session, job, stored)
            job.status = "processing"
            job.created_at = utc_now()

        return await self._change_own(principal, job_id, begin)

    async def cancel(self, principal: Principal, job_id: UUID) -> Job:
        """Cancels a batch, unless it has ended; stores lines in progress. Raises NotFound."""

        def cancel(session: Session, job: Job) -> None:
            if (job.kind, job.status) == (BATCH, "processing"):
                if job.is_in_work(utc_now()):
                    job.status = "cancelling"
                else:
                    self._end(session, job, "cancelled")

        return await self._change_own(principal, job_id, cancel)

    async def drop(self, principal: Principal, job_id: UUID, kind: str) -> None:
        """Deletes an ended batch's files of a kind, or a file that has no batch. Raises NotFound,
        or InvalidRequest if the batch has not ended."""

        def drop(session: Session, job: Job) -> None:
            if job.status in IN_WORK:
                raise InvalidRequest("the batch of the file has not ended; cancel it first")
            if job.status == "uploading":
                jobs.delete_job(session, job)
            else:  # the files' rows stay, since they count the lines
                stored = [file.file_id for file in jobs.files_of(session, job.id, kind)]
                expire_these_files(session, stored, utc_now())

        await self._change_own(principal, job_id, drop)
        await self._delete_expired()

    async def batches(
        self,
        principal: Principal,
        after: UUID | None,
        limit: int,
        *,
        begun: bool,
        oldest_first: bool = False,
    ) -> list[Job]:
        """Lists batches after `after`, newest first unless `oldest_first`. Unless `begun`, files
        without a batch are included, and `after` may be a deleted one. Raises NotFound."""
        owner = principal.workspace_id

        def read(session: Session) -> list[Job]:
            place = None
            if after is not None:
                last = jobs.job_of(session, owner, after, _kinds(principal))
                if begun and last is None:  # its id does not tell when it was begun
                    raise NotFound("no batch of the workspace has that id")
                place = place_of(after, last.created_at if last else None)
            return jobs.batches_after(
                session, owner, place, limit, begun=begun, oldest_first=oldest_first
            )

        return await self._database.read(read)

    async def batch(self, principal: Principal, job_id: UUID) -> tuple[Job, bytes, int]:
        """Reads a batch, its options, and the number of its failed lines. Raises as `requested`."""
        job, files = await self._find(principal, job_id, "options", "failed")
        if job.kind != BATCH:
            raise NotFound("no batch of the workspace has that id")
        options = next(file for file in files if file.kind == "options")
        failed = sum(round(file.seconds) for file in files if file.kind == "failed")
        return job, await self.read(job, options), failed

    async def size(self, job: Job, kind: str) -> int:
        return await self._database.read(jobs.bytes_of, job.id, kind)

    async def delete(
        self, principal: Principal, job_id: UUID, tombstone: bytes | None = None
    ) -> None:
        """Deletes a job, and charges for the finished part of an unfinished one. Raises NotFound.
        With a `tombstone`, which replaces its request, a job that has ended keeps its row. The part
        in progress counts as abandoned work, and is charged beyond the hourly limit."""
        existing, _ = await self._find(principal, job_id)
        service = SERVICES[existing.kind]
        abandoned_units = 0
        if existing.held and existing.is_in_work(utc_now()):
            if not await self._billing.count_abandoned(existing.workspace_id, service):
                window_ms = round(self._work.window_s * 1000)
                abandoned_units = self._work.block_characters if service == "tts" else window_ms

        stored = await self._store(existing.workspace_id, {REQUEST: tombstone}, is_result=True)

        def delete(session: Session, job: Job) -> None:
            job.units = min(job.units + abandoned_units, job.held or 0)
            self._settle(session, job, charges=job.status in UNFINISHED)
            if job.kind == BATCH and not job.is_in_work(utc_now()):  # else its process settles them
                release_lines(session, job)
            if tombstone is None or job.finished_at is None:
                jobs.delete_job(session, job)
            else:
                jobs.drop_files(session, job.id, *jobs.KINDS)
                keep_files(session, job.workspace_id, stored.values())
                self._keep(session, job, stored)
            audit(session, job.workspace_id, "job.deleted", principal.actor, str(job_id))

        await self._change_own(principal, job_id, delete)
        await self._delete_expired()
        await self._database.forget_deleted()

    def _check_plan(self, session: Session, workspace_id: int, is_requested: bool) -> None:
        workspace = session.get(Workspace, workspace_id)
        most = plan_limits(session, self._plans, workspace_id).jobs
        if is_requested:
            most *= self._work.requested_per_job
        if workspace is not None and workspace.retention == "zero":
            raise InvalidRequest(
                "jobs are not available with zero retention, because they store audio"
            )
        check_room(session, self._plans, workspace_id, more=1)
        if jobs.count_unfinished(session, workspace_id, is_requested=is_requested) >= most:
            noun = ("transcript" if is_requested else "job") + ("" if most == 1 else "s")
            limit = f"the plan allows {most} unfinished {noun}"
            raise PlanRequired(f"{limit}; wait for one, or delete it")

    async def _find(
        self, principal: Principal, job_id: UUID, *kinds: str
    ) -> tuple[Job, list[JobFile]]:
        """Reads a job and its files of some kinds. Raises NotFound."""

        def find(session: Session) -> tuple[Job, list[JobFile]]:
            job = _own(session, principal, job_id)
            return job, jobs.files_of(session, job.id, *kinds)

        return await self._database.read(find)

    async def _change_own(
        self, principal: Principal, job_id: UUID, change: Callable[[Session, Job], None]
    ) -> Job:
        """Calls `change` with the locked row of a job; returns it. Raises NotFound."""

        def work(session: Session) -> Job:
            # The workspace is locked before its jobs, as in the erasure, to avoid deadlocks.
            lock_workspace(session, principal.workspace_id, shared=True)
            job = _own(session, principal, job_id, lock=True)
            change(session, job)
            return job

        return await self._database.run(work)


def _kinds(principal: Principal) -> list[str]:
    return [kind for kind, scope in SERVICES.items() if scope in principal.scopes]


def _own(session: Session, principal: Principal, job_id: UUID, *, lock: bool = False) -> Job:
    """Reads a job that the key may use. Raises NotFound."""
    job = jobs.job_of(session, principal.workspace_id, job_id, _kinds(principal), lock=lock)
    if job is None:
        raise NotFound("no job of the workspace has that id")
    return job


def _check_waits(job: Job, number: int) -> None:
    if job.kind == BATCH or job.status != "uploading" or number > job.parts:
        raise InvalidRequest("number: the job is not waiting for this part")
