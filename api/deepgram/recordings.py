"""Deepgram's `POST /v1/listen`: a recording, sent as the body or fetched from a URL."""

import asyncio
import hashlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import BaseModel

from api.deepgram.options import BEARER_OR_TOKEN, ENCODINGS, RecordingQuery, check_recogniser
from api.deepgram.transcripts import RecordingResults, metadata
from api.dialects.recordings import fetched
from api.http.bodies import parse_json, read_json
from api.http.errors import ApiError
from api.http.limits import take_place
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import BINARY, receive_file, validated
from api.services import SpeechServices
from models.base import ModelInfo
from pipelines.accounts.authentication import Principal
from pipelines.audio.decode.stream import as_wav
from pipelines.billing.operation import Operation
from pipelines.stt.file import FileTranscript
from telemetry.tracing import request_id

router = make_router("Deepgram's dialect", scope="stt", schemes=BEARER_OR_TOKEN)

RECORDING = {**BINARY, "description": "A recording in any format that `POST /stt` takes, or raw "}
RECORDING["description"] += "samples of `encoding`; or JSON with its `url`, as `application/json`."


class RecordingUrl(BaseModel):
    url: str


@router.post(
    "/v1/listen",
    summary="Transcribe a recording, for Deepgram's clients",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": RECORDING}},
        }
    },
)
async def transcribe_recording(
    request: Request,
    principal: PrincipalDep,
    speech: SpeechDep,
    operation: OperationDep,
    query: Annotated[RecordingQuery, Query()],
) -> dict[str, Any]:
    """If the client disconnects, the work stops."""
    model = await speech.live_transcription.transcriber.describe()
    check_recogniser(query.model, model)
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    work = partial(_transcribe, principal, speech, operation, query, model)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json":
        body = parse_json(await read_json(request))
        if not isinstance(body, dict):
            raise ApiError("validation_error", "the body must be an object with a url")
        url = validated(RecordingUrl, body).url
        await check()
        take_place(request)
        async with fetched(request, speech, url) as path:
            return await while_connected(request.receive, work(path))
    async with receive_file(request, before_large=check) as path:
        return await while_connected(request.receive, work(path))


async def _transcribe(
    principal: Principal,
    speech: SpeechServices,
    operation: Operation,
    query: RecordingQuery,
    model: ModelInfo,
    path: Path,
) -> dict[str, Any]:
    sha256 = await asyncio.to_thread(_prepare, path, query)

    def answer(transcript: FileTranscript) -> dict[str, Any]:
        duration = round(transcript.duration_s, 3)
        counts = {"duration": duration, "channels": 2 if query.multichannel else 1}
        about = metadata(request_id.get() or "", model, sha256, **counts)
        if query.tag:
            about["tags"] = query.tag
        return {"metadata": about, "results": RecordingResults(query, transcript).as_json()}

    owner = principal.workspace_id
    return await speech.transcription.transcribe(owner, operation, path, query.to_request(), answer)


def _prepare(path: Path, query: RecordingQuery) -> str:
    """The digest of the recording; raw samples become a file of their format. Blocking."""
    data = path.read_bytes()
    if query.encoding is not None and query.sample_rate is not None:
        path.write_bytes(as_wav(data, ENCODINGS[query.encoding], query.sample_rate))
    return hashlib.sha256(data).hexdigest()
