"""AssemblyAI's transcripts of recordings, which are transcription jobs."""

from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import UUID

from anyio import to_thread
from fastapi import Query, Request
from starlette.responses import JSONResponse, Response

from api.assemblyai.options import FAMILIES, ListQuery, PartQuery, TranscriptOptions
from api.assemblyai.streams import SCHEMES
from api.assemblyai.transcripts import (
    TOMBSTONE,
    ShownTranscript,
    StoredRequest,
    list_item,
    status_of,
    transcript_json,
)
from api.callers import Caller, CallerDep
from api.dialects.requests import check_model
from api.http.bodies import ADDRESS_TOO_LONG
from api.http.errors import ApiError, InvalidAddress, InvalidField
from api.http.routing import InfrastructureDep, PlatformDep, make_router
from api.http.uploads import UploadLimits, file_schema, multipart_boundary, receive_file
from api.native.jobs import CONFIG, LEAST_MS, RECORDING
from api.services import InfrastructureServices
from pipelines.errors import InvalidUrl, NotFound
from pipelines.jobs.jobs import RequestedJob
from pipelines.jobs.transcription import TASK, TranscriptionTask, joined
from pipelines.stt.file import FileTranscript
from pipelines.webhooks.callbacks import CallbackRequest

# Clients that wait for many transcripts poll each of them every 3 s, and never repeat a refused
# request. Requests that are sent once per transcript, such as uploads, keep the plan's limit.
routers = router, states = [
    make_router("AssemblyAI's dialect", scope="stt", schemes=SCHEMES, is_polled=is_polled)
    for is_polled in (False, True)
]

UPLOADS = "/v2/upload"
TRANSCRIPTS = "/v2/transcript"
LIMITS = UploadLimits(max_file_bytes=CONFIG.upload_mb << 20)
MEDIA_TYPES = {"srt": "application/x-subrip; charset=utf-8", "vtt": "text/vtt"}
Answer = dict[str, Any]


def _url(infrastructure: InfrastructureServices, path: str) -> str:
    return f"{infrastructure.settings.public_url}{path}"


async def _check_room(caller: Caller) -> None:
    """Checks that the plan allows another transcript. Clients send several in parallel."""
    await caller.speech.jobs.check_room(
        caller.principal, "transcription", LEAST_MS, caller.operation, is_requested=True
    )


@router.post(
    UPLOADS,
    summary="Upload a recording, for AssemblyAI's clients",
    openapi_extra=file_schema(RECORDING),
)
async def upload_recording(
    request: Request, caller: CallerDep, infrastructure: InfrastructureDep
) -> Answer:
    """Stores the body, a recording, for a day. `POST /v2/transcript` can transcribe it."""
    if multipart_boundary(request) is not None:
        message = "send the recording itself as the body, not as a form"
        raise ApiError("unsupported_media_type", message)
    check = partial(_check_room, caller)
    async with receive_file(request, check, LIMITS) as path:
        if not path.stat().st_size:
            raise ApiError("validation_error", "the body is empty; send a recording")
        await check()
        file_id = await caller.speech.jobs.keep_upload(caller.principal, path)
    return {"upload_url": _url(infrastructure, f"{UPLOADS}/{file_id}")}


@router.post(TRANSCRIPTS, summary="Transcribe a long recording, for AssemblyAI's clients")
async def create_transcript(
    body: TranscriptOptions,
    caller: CallerDep,
    platform: PlatformDep,
    infrastructure: InfrastructureDep,
) -> Answer:
    """Creates a transcription job for an upload, or for the recording at a URL."""
    principal = caller.principal
    speech = caller.speech
    recogniser = await speech.live_transcription.transcriber.describe()
    for name in (*(body.speech_models or ()), *filter(None, [body.speech_model])):
        check_model("speech_model", FAMILIES, name, recogniser)
    await _check_room(caller)
    upload = await _check_recording(body.audio_url, caller, infrastructure)
    recognition = await speech.transcription.pipeline.resolve(body.recognition())
    callback = None
    if bool(body.webhook_auth_header_name) != bool(body.webhook_auth_header_value):
        text = "send the name and the value of the header together"
        raise InvalidField("webhook_auth_header_value", text)
    if body.webhook_url:
        message = CallbackRequest(
            completed={"transcript_id": "{id}", "status": "completed"},
            failed={"transcript_id": "{id}", "status": "error"},
            headers=body.webhook_headers,
        )
        try:
            callback = platform.webhooks.callback(principal, body.webhook_url, message)
        except InvalidUrl as error:
            raise InvalidAddress("webhook_url", error) from None
    task = TranscriptionTask(
        request=recognition,
        url="" if upload else body.audio_url,
        upload=upload,
        most_s=CONFIG.most_hours * 3600,
        window_s=CONFIG.window_s,
        start_s=(body.audio_start_from or 0) / 1000,
        end_s=None if body.audio_end_at is None else body.audio_end_at / 1000,
    )
    stored = StoredRequest(options=body, model=recogniser.id)
    request = stored.model_dump_json(exclude_none=True).encode()
    job = await speech.jobs.create(
        principal,
        caller.operation,
        kind="transcription",
        name="recording",
        options=TASK.dump_json(task),
        is_fetched=True,
        request=request,
        callback=callback,
    )
    return transcript_json(RequestedJob(job, request, "queued", None), stored, None)


async def _check_recording(url: str, caller: Caller, infrastructure: InfrastructureServices) -> str:
    """Checks an address; returns the id of an upload, or "". Raises ApiError(validation_error)."""
    uploads = _url(infrastructure, f"{UPLOADS}/")
    try:
        if not url.startswith(uploads):
            caller.speech.check_url(url)
            return ""
        upload = url.removeprefix(uploads)
        await caller.speech.jobs.check_upload(caller.principal, upload)
        return upload
    except InvalidUrl as error:
        raise InvalidAddress("audio_url", error) from None
    except NotFound:
        raise InvalidField("audio_url", "the upload does not exist any more") from None


@router.get(TRANSCRIPTS, summary="List transcripts, for AssemblyAI's clients")
async def list_transcripts(
    caller: CallerDep, infrastructure: InfrastructureDep, query: Annotated[ListQuery, Query()]
) -> Answer:
    """Transcripts come newest first. `prev_url` leads to older ones, `next_url` to newer ones."""
    rows = await caller.speech.jobs.list_requested(
        caller.principal,
        query.limit + 1,
        before=query.before_id,
        after=query.after_id,
        created_on=query.created_on,
        stage="failed" if query.status == "error" else query.status,
    )
    has_more = len(rows) > query.limit
    page = rows[-query.limit :] if query.after_id else rows[: query.limit]
    url = _url(infrastructure, TRANSCRIPTS)
    filters = query.model_dump(mode="json", exclude_none=True, exclude={"before_id", "after_id"})

    def neighbour(name: str, requested: RequestedJob) -> str:
        return f"{url}?{urlencode({**filters, name: str(requested.job.id)})}"

    has_older = bool(query.after_id) or has_more
    has_newer = has_more if query.after_id else bool(query.before_id)
    current = urlencode(query.model_dump(mode="json", exclude_none=True))
    return {
        "page_details": {
            "limit": query.limit,
            "result_count": len(page),
            "current_url": f"{url}?{current}",
            "prev_url": neighbour("before_id", page[-1]) if page and has_older else None,
            "next_url": neighbour("after_id", page[0]) if page and has_newer else None,
        },
        "transcripts": [list_item(requested, url) for requested in page],
    }


async def _result(caller: Caller, job_id: UUID) -> FileTranscript:
    return await to_thread.run_sync(
        joined, await caller.speech.jobs.results(caller.principal, job_id)
    )


@states.get(
    f"{TRANSCRIPTS}/{{transcript_id:uuid}}",
    summary="Get a transcript, for AssemblyAI's clients",
    response_class=JSONResponse,
)
async def get_transcript(transcript_id: UUID, caller: CallerDep) -> Response:
    requested = await caller.speech.jobs.requested(caller.principal, transcript_id)
    stored = StoredRequest.model_validate_json(requested.request)
    transcript = None
    if requested.stage == "completed":
        transcript = await _result(caller, transcript_id)
    return await to_thread.run_sync(
        lambda: JSONResponse(transcript_json(requested, stored, transcript))
    )


@router.delete(
    f"{TRANSCRIPTS}/{{transcript_id:uuid}}", summary="Delete a transcript, for AssemblyAI's clients"
)
async def delete_transcript(transcript_id: UUID, caller: CallerDep) -> Answer:
    """Deletes all content except the upload, which is deleted a day after it was sent.

    An unfinished transcript is cancelled, and its finished part charged.
    """
    requested = await caller.speech.jobs.requested(caller.principal, transcript_id)
    tombstone = TOMBSTONE.model_dump_json(exclude_none=True).encode()
    await caller.speech.jobs.delete(caller.principal, transcript_id, tombstone)
    return transcript_json(requested, TOMBSTONE, None)


Part = Literal["sentences", "paragraphs", "srt", "vtt", "word-search"]


@router.get(
    f"{TRANSCRIPTS}/{{transcript_id:uuid}}/{{part}}",
    summary="Get a part of a transcript, for AssemblyAI's clients",
    response_class=JSONResponse,
    responses={200: {"content": dict.fromkeys(MEDIA_TYPES.values(), {})}, **ADDRESS_TOO_LONG},
)
async def get_part(
    transcript_id: UUID, part: Part, caller: CallerDep, query: Annotated[PartQuery, Query()]
) -> Response:
    """Needs a completed transcript. Subtitles are text, all other parts JSON."""
    requested = await caller.speech.jobs.requested(caller.principal, transcript_id)
    if requested.stage != "completed":
        message = f"the transcript has the status {status_of(requested)!r}, and must be 'completed'"
        raise ApiError("validation_error", message)
    stored = StoredRequest.model_validate_json(requested.request)
    transcript = await _result(caller, transcript_id)

    def render() -> Response:
        result = ShownTranscript(stored.options, transcript)
        answer: Answer = {"id": str(transcript_id)}
        if part == "srt" or part == "vtt":
            captions = result.captions(part, query.chars_per_caption)
            return Response(captions, media_type=MEDIA_TYPES[part])
        if part == "word-search":
            matches = result.matches(query.words.split(","))
            answer |= {"total_count": sum(match["count"] for match in matches), "matches": matches}
        else:
            answer[part] = result.sentences() if part == "sentences" else result.paragraphs()
            answer["confidence"] = round(transcript.confidence, 4)
            answer["audio_duration"] = round(transcript.duration_s)
            answer["speech_model_used"] = stored.model or None
        return JSONResponse(answer)

    return await to_thread.run_sync(render)
