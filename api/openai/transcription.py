"""POST /openai/v1/audio/transcriptions: its form, and transcripts in OpenAI's formats."""

import re
import zlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, BeforeValidator, Field, model_validator
from starlette.responses import Response

from api.http.errors import ApiError
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import EventStream, encode_frames, error_frame, event_frame, while_connected
from api.http.uploads import MultipartForm, UploadLimits, form_schema, receive_form, validated
from api.openai.names import OpenAINames
from configs.schema.transcription import ProfileName
from models.stt.base import Segment
from pipelines.billing.operation import Operation
from pipelines.stt.file import FileRequest, FileTranscript, HeardText, expected_text, separator_of
from pipelines.stt.paid import PaidTranscription
from pipelines.stt.subtitles import to_srt, to_vtt
from pipelines.text.language_names import name_language

router = make_router("speech to text", scope="stt")

LIMITS = UploadLimits(max_fields=200)  # each item of a list is a field

TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
STREAMED: frozenset[TranscriptFormat] = frozenset({"json", "text", "diarized_json"})

_LIST_NAME = re.compile(r"(?P<name>.*)\[\d*\]", re.DOTALL)
_LISTS = frozenset({"timestamp_granularities", "languages", "keywords"})


def _clean(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


Code = Annotated[str, BeforeValidator(_clean), Field(max_length=35)]
Switch = Annotated[bool, BeforeValidator(_clean)]


class OpenAITranscriptionFields(BaseModel):
    """The plain fields of the form; a form has only strings. Unknown fields are ignored."""

    model: str = Field(default="whisper-1", max_length=200)
    language: Code = Field(default="", description="A language code; detected when absent.")
    languages: list[Code] = Field(
        default=[], max_length=20, description="Detection chooses among these."
    )
    prompt: str = Field(default="", description="Names and terms to expect, or the preceding text.")
    keywords: list[Annotated[str, Field(max_length=100)]] = Field(
        default=[], max_length=100, description="Terms to expect."
    )
    response_format: TranscriptFormat = "json"
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        default=[], max_length=10, description="For `verbose_json`; by default `segment`."
    )
    stream: Switch = Field(
        default=False, description="Streams events; not for verbose_json, srt and vtt."
    )
    temperature: float = Field(default=0.0, ge=0.0, le=1.0, description="Has no effect.")

    @model_validator(mode="after")
    def _can_stream(self) -> "OpenAITranscriptionFields":
        if self.stream and self.response_format not in STREAMED:
            raise ValueError(f"stream: {self.response_format} cannot be streamed, json can")
        return self

    @property
    def words(self) -> bool:
        """Whether the answer needs word timestamps."""
        if self.response_format == "verbose_json":
            return "word" in self.timestamp_granularities
        return self.response_format in ("srt", "vtt")

    @property
    def expected(self) -> str:
        """The keywords and the prompt in one text."""
        return expected_text(self.keywords, self.prompt)


def fields_by_name(form: MultipartForm) -> dict[str, Any]:
    """The values of a form, with lists for fields such as `timestamp_granularities[]`.

    A plain field that comes twice has its last value.
    """
    found: dict[str, Any] = {}
    for sent, value in form.values:
        match = _LIST_NAME.fullmatch(sent)
        name = match["name"] if match else sent
        if name in _LISTS:
            found.setdefault(name, []).append(value)
        elif not match:
            found[name] = value
    return found


_TEXT = {"schema": {"type": "string"}}


@router.post(
    "/openai/v1/audio/transcriptions",
    summary="Transcribe a file, for OpenAI's clients",
    openapi_extra=form_schema("file", OpenAITranscriptionFields),
    responses={
        200: {
            "description": "The text in the format asked for, or server-sent events",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                **dict.fromkeys(("text/plain", "text/vtt"), _TEXT),
                "text/event-stream": {},
            },
        }
    },
)
async def create_transcription(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """Transcribes a recording. If the client disconnects, it stops; what was sent is charged."""
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    async with receive_form(request, LIMITS, check) as form:
        path = form.file("file").path
        fields = validated(OpenAITranscriptionFields, fields_by_name(form))
        work = _transcribe(
            speech.transcription, speech.openai, principal.workspace_id, operation, path, fields
        )
        return await while_connected(request.receive, work)


@router.post("/openai/v1/audio/translations", include_in_schema=False)
async def create_translation() -> Response:
    """Refused clearly: a translation that is a mere transcript would be worse."""
    message = "there are no translations; POST /openai/v1/audio/transcriptions transcribes"
    raise ApiError("not_found", message)


async def _transcribe(
    transcription: PaidTranscription,
    names: OpenAINames,
    workspace_id: int,
    operation: Operation,
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
            workspace_id, operation, path, asked, partial(_whole_answer, fields)
        )
    recording = await transcription.open(workspace_id, operation, path, asked)
    heard = transcription.stream(workspace_id, operation, recording)
    first = await anext(heard)  # an error before the first event sets the HTTP status
    return EventStream(encode_frames(first, heard, TranscriptWriter(fields)), heard)


def _whole_answer(fields: OpenAITranscriptionFields, transcript: FileTranscript) -> Response:
    """The answer in the format that was asked for."""
    separator = separator_of(transcript.language)
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{transcript.text}\n")
        case "srt":
            return PlainTextResponse(to_srt(transcript.turns, separator))
        case "vtt":
            return Response(to_vtt(transcript.turns, separator), media_type="text/vtt")
        case "verbose_json":
            return JSONResponse(_verbose(transcript, fields))
        case "diarized_json":
            return JSONResponse(_diarized(transcript))
        case "json":
            return JSONResponse(_plain(transcript))


class TranscriptWriter:
    """An event for each speech segment, then the whole; a failure is the last event."""

    def __init__(self, fields: OpenAITranscriptionFields) -> None:
        self._fields = fields

    def write(self, item: HeardText | FileTranscript) -> bytes:
        if isinstance(item, HeardText):
            return event_frame({"type": "transcript.text.delta", "delta": item.text})
        done = event_frame({"type": "transcript.text.done", **_plain(item)})
        if self._fields.response_format != "diarized_json":
            return done
        return b"".join([*map(event_frame, _speakers(item)), done])

    def finish(self) -> list[bytes]:
        return []

    def fail(self, error: Exception) -> bytes:
        return error_frame(error)


def _plain(transcript: FileTranscript) -> dict[str, Any]:
    known = [{"code": transcript.language}] if transcript.segments else []
    return {"text": transcript.text, "languages": known, "usage": _usage(transcript)}


def _verbose(transcript: FileTranscript, fields: OpenAITranscriptionFields) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "task": "transcribe",
        "language": name_language(transcript.language).name.lower(),
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
    }
    if fields.words:
        answer["words"] = [
            {"word": word.word, "start": word.start, "end": word.end} for word in transcript.words
        ]
    if not fields.words or "segment" in fields.timestamp_granularities:
        answer["segments"] = [
            _segment(number, segment) for number, segment in enumerate(transcript.segments)
        ]
    return {**answer, "usage": _usage(transcript)}


def _segment(number: int, segment: Segment) -> dict[str, Any]:
    text = segment.text.encode()
    return {
        "id": number,
        "seek": round(segment.start * 100),  # Whisper counts in frames of 10 ms
        "start": round(segment.start, 2),
        "end": round(segment.end, 2),
        "text": segment.text,
        "tokens": [],  # the recogniser does not report them
        "temperature": 0.0,
        "avg_logprob": round(segment.avg_logprob, 4),
        "compression_ratio": round(len(text) / len(zlib.compress(text)), 4),
        "no_speech_prob": round(segment.no_speech_prob, 4),
    }


def _diarized(transcript: FileTranscript) -> dict[str, Any]:
    return {
        "task": "transcribe",
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
        "segments": _speakers(transcript),
        "usage": _usage(transcript),
    }


def _speakers(transcript: FileTranscript) -> list[dict[str, Any]]:
    return [
        {
            "type": "transcript.text.segment",
            "id": f"seg_{number}",
            "start": round(utterance.start, 2),
            "end": round(utterance.end, 2),
            "text": utterance.text,
            "speaker": utterance.speaker,
        }
        for number, utterance in enumerate(transcript.utterances or ())
    ]


def _usage(transcript: FileTranscript) -> dict[str, Any]:
    return {"type": "duration", "seconds": round(transcript.duration_s, 3)}
