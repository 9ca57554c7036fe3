"""Batches for OpenAI's clients, which are jobs of many chat requests, and the files of batches."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from anyio import to_thread
from fastapi import Query, Request
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import Response

from api.http.bodies import RequestModel
from api.http.errors import ApiError, InvalidField
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import StreamedResponse
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form
from api.openai.batches.lines import check_ids
from api.openai.pages import MOST_ITEMS, CursorPage, CursorQuery, page_of
from api.openai.realtime.session_object import Metadata
from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from db.database import utc_now
from pipelines.accounts.authentication import Principal
from pipelines.errors import NotFound
from pipelines.jobs.batches import TASK, BatchTask, count_lines
from pipelines.jobs.jobs import Jobs

router = make_router("batches", scope="chat")

T = TypeVar("T")

CONFIG = load_yaml(JobsConfig, "jobs")
UPLOAD = UploadLimits(max_file_bytes=CONFIG.batch_mb << 20)
MEDIA_TYPE = "application/jsonl"
FINAL_STATUSES = ("completed", "failed", "cancelled", "expired")
LINES = f"JSON Lines file; at most {CONFIG.batch_mb} MB and {CONFIG.batch_lines:,} lines."
KINDS = {"": "part", "-output": "result", "-errors": "failed"}
"""Kinds of files of a job, by the suffix of the file's id."""


class FileFields(BaseModel):
    """The form fields of an upload, without the file."""

    purpose: Literal["batch"]


class BatchFile(BaseModel):
    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"] = "processed"


class FileQuery(CursorQuery):
    limit: Annotated[int, AfterValidator(lambda limit: min(limit, MOST_ITEMS))] = Field(
        default=20, ge=1, le=10_000, description=f"A page has at most {MOST_ITEMS} files."
    )
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = Field(
        default=None, max_length=200, description="Any value except `batch` lists nothing."
    )


class DeletedFile(BaseModel):
    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class RequestCounts(BaseModel):
    total: int
    completed: int
    failed: int


class BatchErrors(BaseModel):
    object: Literal["list"] = "list"
    data: list[dict[str, str | None]]


class ShownBatch(BaseModel):
    """A batch and its progress."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: Literal["24h"] = "24h"
    status: Literal[
        "validating", "in_progress", "completed", "failed", "cancelling", "cancelled", "expired"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    completed_at: int | None
    failed_at: int | None
    cancelled_at: int | None
    expired_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str]


class BatchBody(RequestModel):
    """A batch: the file with the requests, and the endpoint that answers them."""

    input_file_id: Annotated[str, Field(max_length=200)]
    endpoint: Literal["/v1/chat/completions", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None


@router.post(
    "/openai/v1/files",
    summary="Upload a batch file, for OpenAI's clients",
    openapi_extra=form_schema("file", FileFields, {**BINARY, "description": LINES}),
)
async def upload_file(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> BatchFile:
    """Each line is one request. The file counts as an unfinished job of the plan, and is deleted
    when its batch ends.
    """
    check = partial(speech.jobs.check_room, principal, "batch", 1, operation)
    async with receive_form(request, UPLOAD, check) as form:
        form.read(FileFields)
        upload = form.file("file")
        lines = await to_thread.run_sync(count_lines, upload.path, CONFIG.batch_lines)
        if not 1 <= lines <= CONFIG.batch_lines:
            raise InvalidField("file", f"1 to {CONFIG.batch_lines} lines are allowed")
        await to_thread.run_sync(check_ids, upload.path)
        await check()
        task = BatchTask(upload.size_bytes, utc_now())
        name = upload.filename[:200] or "batch.jsonl"
        job = await speech.jobs.create(
            principal, operation, "batch", name, TASK.dump_json(task), upload.path, lines
        )
    return _input_file(job, task)


@router.get("/openai/v1/files", summary="List batch files, for OpenAI's clients")
async def list_files(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[FileQuery, Query()]
) -> CursorPage[BatchFile]:
    """Returns uploaded files, but not result files."""
    if query.purpose not in (None, "batch"):
        return page_of([], query.limit)
    oldest_first = query.order == "asc"
    return await _page(
        speech.jobs, principal, query, "file-", _input_file, begun=False, oldest_first=oldest_first
    )


@router.get("/openai/v1/files/{batch_file_id}", summary="Get a batch file, for OpenAI's clients")
async def read_file(batch_file_id: str, principal: PrincipalDep, speech: SpeechDep) -> BatchFile:
    job, task, kind = await _file(speech.jobs, principal, batch_file_id)
    if kind == "part":
        return _input_file(job, task)
    return BatchFile(
        id=batch_file_id,
        bytes=await speech.jobs.size(job, kind),
        created_at=_seconds(job.finished_at or job.created_at),
        filename=f"{batch_file_id}.jsonl",
        purpose="batch_output",
    )


@router.get(
    "/openai/v1/files/{batch_file_id}/content",
    summary="Download a batch file, for OpenAI's clients",
    response_class=Response,
    responses={200: {"content": {MEDIA_TYPE: {}}}},
)
async def read_content(batch_file_id: str, principal: PrincipalDep, speech: SpeechDep) -> Response:
    job, _, kind = await _file(speech.jobs, principal, batch_file_id)
    if not await speech.jobs.size(job, kind):
        raise ApiError("not_found", "the file was deleted when its batch ended")
    return StreamedResponse(speech.jobs.joined(job, kind), None, MEDIA_TYPE)


@router.delete("/openai/v1/files/{batch_file_id}", summary="Delete a file, for OpenAI's clients")
async def delete_file(
    batch_file_id: str, principal: PrincipalDep, speech: SpeechDep
) -> DeletedFile:
    """Returns 400 if the batch of the file has not ended."""
    job, _, kind = await _file(speech.jobs, principal, batch_file_id)
    await speech.jobs.drop(principal, job.id, kind)
    return DeletedFile(id=batch_file_id)


@router.post("/openai/v1/batches", summary="Create a batch, for OpenAI's clients")
async def create_batch(body: BatchBody, principal: PrincipalDep, speech: SpeechDep) -> ShownBatch:
    """Starts a batch, which runs while the machine is otherwise idle. Each line is charged as one
    request."""
    job, task, kind = await _file(speech.jobs, principal, body.input_file_id, "input_file_id")
    if kind != "part":
        raise InvalidField("input_file_id", "must be an uploaded file, not a result")
    task = replace(task, endpoint=body.endpoint, metadata=body.metadata or {})
    job = await speech.jobs.begin_batch(principal, job.id, TASK.dump_json(task))
    return _shown(job, task, 0)


@router.get("/openai/v1/batches", summary="List batches, for OpenAI's clients")
async def list_batches(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[CursorQuery, Query()]
) -> CursorPage[ShownBatch]:
    return await _page(speech.jobs, principal, query, "batch_", _shown, begun=True)


@router.get("/openai/v1/batches/{batch_id}", summary="Get a batch, for OpenAI's clients")
async def read_batch(batch_id: str, principal: PrincipalDep, speech: SpeechDep) -> ShownBatch:
    return _shown(*await _batch(speech.jobs, principal, batch_id))


@router.post("/openai/v1/batches/{batch_id}/cancel", summary="Cancel a batch, for OpenAI's clients")
async def cancel_batch(batch_id: str, principal: PrincipalDep, speech: SpeechDep) -> ShownBatch:
    """Cancels a batch, which is `cancelling` until the lines in progress are done. Answers of lines
    that are done are kept and charged."""
    job, *_ = await _batch(speech.jobs, principal, batch_id)
    await speech.jobs.cancel(principal, job.id)
    return _shown(*await _batch(speech.jobs, principal, batch_id))


def _uuid_of(text: str, prefix: str, field: str | None = None) -> tuple[UUID, str]:
    """Returns the UUID in an id, and the suffix after it. Raises ApiError(not_found)."""
    match = re.fullmatch(rf"{prefix}([0-9a-f]{{32}})(-output|-errors)?", text)
    if match is None or (prefix != "file-" and match[2]):
        raise ApiError("not_found", "there is nothing with that id", param=field)
    return UUID(match[1]), match[2] or ""


async def _read(jobs: Jobs, principal: Principal, job_id: UUID) -> tuple[Any, BatchTask, int]:
    """Returns a job, its task, and the number of failed lines. Raises ApiError(not_found)."""
    try:
        job, options, failed = await jobs.batch(principal, job_id)
    except NotFound:
        raise ApiError("not_found", "there is nothing with that id") from None
    return job, TASK.validate_json(options), failed


async def _batch(jobs: Jobs, principal: Principal, batch_id: str) -> tuple[Any, BatchTask, int]:
    job, task, failed = await _read(jobs, principal, _uuid_of(batch_id, "batch_")[0])
    if not task.endpoint:  # a file without a batch
        raise ApiError("not_found", "there is nothing with that id")
    return job, task, failed


async def _file(
    jobs: Jobs, principal: Principal, file_id: str, field: str | None = None
) -> tuple[Any, BatchTask, str]:
    """Returns the job of a file, its task, and the kind of the file. Raises ApiError(not_found)."""
    job_id, suffix = _uuid_of(file_id, "file-", field)
    job, task, _ = await _read(jobs, principal, job_id)
    kind = KINDS[suffix]
    if suffix and not (job.finished_at and await jobs.size(job, kind)):
        raise ApiError("not_found", "there is nothing with that id", param=field)
    return job, task, kind


async def _page(
    jobs: Jobs,
    principal: Principal,
    query: CursorQuery,
    prefix: str,
    shown: Callable[[Any, BatchTask, int], T],
    *,
    begun: bool,
    oldest_first: bool = False,
) -> CursorPage[T]:
    """Makes a page of jobs; `shown` converts what `_read` returns for each."""
    after = query.after and _uuid_of(query.after, prefix, "after")[0]
    rows = await jobs.batches(
        principal, after or None, query.limit + 1, begun=begun, oldest_first=oldest_first
    )
    items = []
    for row in rows[: query.limit]:
        with suppress(ApiError):  # the job was deleted meanwhile
            items.append(shown(*await _read(jobs, principal, row.id)))
    return page_of(items, query.limit, has_more=len(rows) > query.limit)


def _input_file(job: Any, task: BatchTask, _: int = 0) -> BatchFile:
    return BatchFile(
        id=f"file-{job.id.hex}",
        bytes=task.size,
        created_at=_seconds(task.uploaded_at),
        filename=job.name,
        purpose="batch",
    )


def _shown(job: Any, task: BatchTask, failed: int) -> ShownBatch:
    digits = job.id.hex
    ended = job.finished_at
    status = "in_progress" if job.lease or job.units else "validating"
    status = status if job.status == "processing" else job.status
    times: Any = {f"{final}_at": None for final in FINAL_STATUSES}
    times[f"{status}_at"] = ended and _seconds(ended)
    error = {"code": job.error, "message": job.reason, "param": None}
    return ShownBatch(
        id=f"batch_{digits}",
        endpoint=task.endpoint,
        errors=BatchErrors(data=[error]) if job.error else None,
        input_file_id=f"file-{digits}",
        status=status,
        output_file_id=f"file-{digits}-output" if ended and job.units > failed else None,
        error_file_id=f"file-{digits}-errors" if ended and failed else None,
        created_at=_seconds(job.created_at),
        expires_at=_seconds(job.created_at + timedelta(hours=CONFIG.batch_hours)),
        request_counts=RequestCounts(total=job.parts, completed=job.units - failed, failed=failed),
        metadata=task.metadata,
        **times,
    )


def _seconds(at: datetime) -> int:
    """Converts a time to Unix seconds."""
    return int(at.timestamp())
