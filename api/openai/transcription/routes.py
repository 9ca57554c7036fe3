"""POST /openai/v1/audio/transcriptions."""

from pathlib import Path
from typing import Any, cast, get_args

from fastapi import Request
from starlette.responses import Response

from api.http.deps import OperationDep, PrincipalDep, SpeechDep
from api.http.errors import ApiError
from api.http.routing import make_router
from api.http.sse import EventStream
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form, validated
from api.openai.names import OpenAINames
from api.openai.transcription.answers import transcript_events, whole_answer
from api.openai.transcription.form import OpenAITranscriptionFields, fields_by_name
from configs.schema.transcription import ProfileName
from pipelines.billing.billing import IdempotentOperation
from pipelines.stt.file import FileRequest
from pipelines.stt.paid import PaidTranscription

router = make_router(scope="stt")

LIMITS = UploadLimits(max_files=1, max_fields=200)  # each item of a list is a field
_TEXT = {"schema": {"type": "string"}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The text in the format asked for, or server-sent events",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            **dict.fromkeys(("text/plain", "text/vtt", "text/event-stream"), _TEXT),
        },
    }
}


@router.post(
    "/openai/v1/audio/transcriptions",
    tags=["speech to text"],
    summary="Transcribe a file, for OpenAI's clients",
    openapi_extra=form_schema("file", OpenAITranscriptionFields),
    response_class=Response,
    responses=_ANSWERS,
)
async def create_transcription(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """The text of a recording. A client that leaves stops the work, and pays for what it got."""
    async with receive_form(request, LIMITS) as form:
        audio = form.file("file")
        fields = validated(OpenAITranscriptionFields, fields_by_name(form))
        work = _transcribe(
            speech.transcription,
            speech.openai,
            principal.workspace_id,
            operation,
            audio.path,
            fields,
        )
        return await while_connected(request.receive, work)


@router.post("/openai/v1/audio/translations", include_in_schema=False)
async def create_translation() -> Response:
    """Refused clearly: a translation that is a mere transcript would be worse."""
    message = "there are no translations; POST /openai/v1/audio/transcriptions transcribes"
    raise ApiError(404, "not_found", message)


async def _transcribe(
    transcription: PaidTranscription,
    names: OpenAINames,
    workspace_id: int,
    operation: IdempotentOperation | None,
    path: Path,
    fields: OpenAITranscriptionFields,
) -> Response:
    profile: ProfileName = "general"
    if fields.model in get_args(ProfileName):
        profile = cast(ProfileName, fields.model)
    else:
        await names.check_transcriber(fields.model)
    asked = FileRequest(
        language=fields.language or None,
        languages=tuple(filter(None, fields.languages)),
        profile=profile,
        words=fields.words,
        speakers=fields.response_format == "diarized_json",
        prompt=fields.expected,
    )
    if not fields.stream:
        return await transcription.transcribe(
            workspace_id, operation, path, asked, lambda heard: whole_answer(heard, fields)
        )
    recording = await transcription.open(workspace_id, path, asked)
    heard = transcription.stream(workspace_id, operation, recording)
    try:
        first = await anext(heard)  # what fails until then still has a status of its own
    except BaseException:  # also when cancelled: closing charges and stops the work
        await heard.aclose()
        raise
    return EventStream(transcript_events(first, heard, fields), heard)
