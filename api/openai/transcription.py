"""Transcription and translation of files for OpenAI's clients: forms, and transcript formats."""

import zlib
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from anyio import to_thread
from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field, StringConstraints, model_validator
from starlette.responses import Response

from api.callers import Caller, CallerDep
from api.http.bodies import OneLine, RedactFields, Switch
from api.http.errors import ApiError, InvalidField
from api.http.routing import make_router, warning_header
from api.http.streaming import EventStream, encode_frames, error_frame, event_frame, while_connected
from api.http.uploads import UploadLimits, form_schema, plain_name, receive_form
from api.openai.names import OpenAINames
from configs.schema.transcription import ProfileName
from models.stt.base import Segment
from models.stt.options import LANGUAGE, KeyTerms, RecognitionOptions
from pipelines.errors import AudioTooLong, FileTooLarge, InvalidAudio
from pipelines.stt.diarization import SpeakerVoice
from pipelines.stt.file import LONGER, FileTranscript, HeardText
from pipelines.stt.formatting import unpunctuated
from pipelines.stt.subtitles import to_srt, to_vtt
from pipelines.text.language_names import name_language

router = make_router("speech to text", scope="stt", visitors=True)

REFERENCES = "known_speaker_references"
MAX_SPEAKERS = 4
# Each item of a list is a form field.
LIMITS = UploadLimits(max_files=1 + MAX_SPEAKERS, max_fields=200, alternative=LONGER)

TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt", "diarized_json"]
STREAMED: frozenset[TranscriptFormat] = frozenset({"json", "text", "diarized_json"})

_LISTS = frozenset({"timestamp_granularities", "languages", "keywords", "keyterms", "redact"})
_LISTS |= {"known_speaker_names"}

Code = Annotated[str, StringConstraints(strip_whitespace=True, max_length=35)]


class OpenAITranscriptionFields(RedactFields):
    """Transcription options as form fields. Unknown fields are ignored."""

    model: str = Field(default="whisper-1", max_length=200)
    language: Code = Field(default="", description=LANGUAGE)
    languages: list[Code] = Field(
        default=[], max_length=20, description="Candidate languages for detection."
    )
    prompt: str = Field(default="", description="Preceding text, or names to expect.")
    keywords: KeyTerms = []
    keyterms: KeyTerms = []
    response_format: TranscriptFormat = "json"
    timestamp_granularities: list[Literal["word", "segment"]] = Field(
        default=[], max_length=10, description="For `verbose_json`. Default: `segment`."
    )
    stream: Switch = Field(
        default=False, description="Streams events. Not for verbose_json, srt and vtt."
    )
    temperature: float = Field(default=0.0, ge=0.0, le=1.0, description="Has no effect.")
    known_speaker_names: list[OneLine] = Field(
        default=[], max_length=MAX_SPEAKERS, description="Speaker names for `diarized_json`."
    )
    known_speaker_references: list[str] = Field(
        default=[],
        max_length=MAX_SPEAKERS,
        description="Speech of each speaker: 2 to 10 seconds, as a base64 `data:` URL.",
    )

    @model_validator(mode="after")
    def _can_stream(self) -> "OpenAITranscriptionFields":
        if self.stream and self.response_format not in STREAMED:
            raise ValueError(f"stream: {self.response_format} cannot be streamed; use json")
        return self

    @property
    def words(self) -> bool:
        """Whether the answer needs word timestamps."""
        if self.response_format == "verbose_json":
            return "word" in self.timestamp_granularities
        return self.response_format in ("srt", "vtt")

    def recognition(self, profile: ProfileName, *, translate: bool) -> RecognitionOptions:
        return RecognitionOptions(
            language=self.language or None,
            languages=tuple(filter(None, self.languages)),
            profile=profile,
            words=self.words,
            translate=translate,
            speakers=self.response_format == "diarized_json",
            prompt=self.prompt.strip(),
            keyterms=(*self.keywords, *self.keyterms),
            redaction=self.redaction(),
        )


class OpenAITranslationFields(BaseModel):
    """Translation options as form fields."""

    model: str = Field(default="whisper-1", max_length=200)
    prompt: str = Field(default="", description="Preceding text, in English.")
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: float = Field(default=0.0, ge=0.0, le=1.0, description="Has no effect.")


_TEXT = {"schema": {"type": "string"}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The text in the requested format, or server-sent events",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            **dict.fromkeys(("text/plain", "text/vtt"), _TEXT),
            "text/event-stream": {},
        },
    }
}


@router.post(
    "/openai/v1/audio/transcriptions",
    summary="Transcribe a file, for OpenAI's clients",
    openapi_extra=form_schema("file", OpenAITranscriptionFields),
    responses=_ANSWERS,
)
async def create_transcription(request: Request, caller: CallerDep) -> Response:
    """Transcribes a recording. If the client disconnects, the work stops, and the text sent so far
    is charged."""
    return await _transcribe(request, caller, translate=False)


@router.post(
    "/openai/v1/audio/translations",
    summary="Translate a file into English, for OpenAI's clients",
    openapi_extra=form_schema("file", OpenAITranslationFields),
    responses=_ANSWERS,
)
async def create_translation(request: Request, caller: CallerDep) -> Response:
    """Translates speech in any language. Returns 400 if the model cannot translate."""
    return await _transcribe(request, caller, translate=True)


async def _transcribe(request: Request, caller: Caller, *, translate: bool) -> Response:
    async with receive_form(request, LIMITS, caller.check_credit) as form:
        path = form.file("file").path
        if sum(upload.field == "file" for upload in form.files) > 1:
            raise ApiError("invalid_file_count", "at most 1 file can be sent", param="file")
        if translate:
            fields = OpenAITranscriptionFields(**form.read(OpenAITranslationFields).model_dump())
        else:
            fields = form.read(OpenAITranscriptionFields, _LISTS)
        profile = await _profile(fields.model, caller.speech.openai)
        options = fields.recognition(profile, translate=translate)
        speakers: tuple[SpeakerVoice, ...] = ()
        if options.speakers:
            await caller.check_credit()
            clips = [file.path for file in form.files if plain_name(file.field) == REFERENCES]
            speakers = await _known_speakers(caller, fields.known_speaker_names, clips)
        if fields.stream:
            work = _stream(caller, path, fields, options, speakers)
            return await while_connected(request.receive, work)
        to_answer = partial(_whole_answer, fields, options)
        return await caller.transcribe(request, path, options, to_answer, speakers)


async def _known_speakers(
    caller: Caller, names: list[str], clips: list[Path]
) -> tuple[SpeakerVoice, ...]:
    """Returns each named speaker's voice, from clips that are not stored. Raises InvalidField,
    Overloaded or EngineError."""
    if len(clips) != len(names) or len(set(map(str.casefold, names))) != len(names):
        message = f"send one distinct name for each of {REFERENCES}"
        raise InvalidField("known_speaker_names", message)
    if not clips:
        return ()
    pipeline = caller.speech.transcription.pipeline
    encoder = (await caller.speech.speakers.options(caller.principal, False)).encoder
    speakers = []
    for name, path in zip(names, clips, strict=True):
        try:
            await to_thread.run_sync(_decode_url, path)
            speakers.append(await pipeline.known_speaker(name, path, encoder, caller.workspace_id))
        except (ValueError, InvalidAudio, AudioTooLong, FileTooLarge) as error:
            raise InvalidField(REFERENCES, str(error)) from None
    return tuple(speakers)


def _decode_url(path: Path) -> None:
    """Replaces a file that holds a `data:` URL by the URL's data; blocking. Raises ValueError."""
    head, _, data = path.read_bytes().partition(b",")
    if not (head.startswith(b"data:") and head.endswith(b";base64")):
        raise ValueError("must be base64 data: URLs")
    path.write_bytes(b64decode(data, validate=True))


async def _profile(model: str, names: OpenAINames) -> ProfileName:
    """Returns the decoding profile of that name, or `general` for the name of a model. Raises
    ApiError(model_not_found)."""
    if model in get_args(ProfileName):
        return cast(ProfileName, model)
    await names.check_transcriber(model)
    return "general"


async def _stream(
    caller: Caller,
    path: Path,
    fields: OpenAITranscriptionFields,
    options: RecognitionOptions,
    speakers: tuple[SpeakerVoice, ...],
) -> Response:
    workspace_id = caller.workspace_id
    operation = caller.operation
    transcription = caller.speech.transcription
    recording = await transcription.open(workspace_id, operation, path, options, known=speakers)
    texts = transcription.stream(workspace_id, operation, recording)
    first = await anext(texts)  # an error before the first event sets the HTTP status
    return EventStream(encode_frames(first, texts, TranscriptWriter(fields)), texts)


def _whole_answer(
    fields: OpenAITranscriptionFields, options: RecognitionOptions, transcript: FileTranscript
) -> Response:
    headers = warning_header(transcript.warnings)
    match fields.response_format:
        case "text":
            return PlainTextResponse(f"{transcript.text}\n", headers=headers)
        case "srt":
            return PlainTextResponse(to_srt(transcript.turns, transcript.language), headers=headers)
        case "vtt":
            vtt = to_vtt(transcript.turns, transcript.language)
            return Response(vtt, headers=headers, media_type="text/vtt")
        case "verbose_json":
            task = "translate" if options.translate else "transcribe"
            return JSONResponse({"task": task, **_verbose(transcript, fields)}, headers=headers)
        case "diarized_json":
            answer = {
                "task": "transcribe",
                "duration": round(transcript.duration_s, 3),
                "text": transcript.text,
                "segments": _speakers(transcript),
                "usage": _usage(transcript),
            }
            return JSONResponse(answer, headers=headers)
        case "json":
            answer = {**_plain(transcript), "usage": _usage(transcript)}
            return JSONResponse(answer, headers=headers)


class TranscriptWriter:
    """Writes an event for each speech segment, then the whole transcript or the failure."""

    def __init__(self, fields: OpenAITranscriptionFields) -> None:
        self._fields = fields

    def write(self, item: HeardText | FileTranscript) -> bytes:
        if isinstance(item, HeardText):
            return event_frame({"type": "transcript.text.delta", "delta": item.text})
        # Has no `usage`, which this event could only give in tokens.
        done = event_frame({"type": "transcript.text.done", **_plain(item)})
        if self._fields.response_format != "diarized_json":
            return done
        return b"".join([*map(event_frame, _speakers(item)), done])

    def finish(self) -> list[bytes]:
        return []

    def fail(self, error: Exception) -> bytes:
        return error_frame(error)


def _plain(transcript: FileTranscript) -> dict[str, Any]:
    languages = [{"code": transcript.language}] if transcript.segments else []
    return {"text": transcript.text, "languages": languages}


def _verbose(transcript: FileTranscript, fields: OpenAITranscriptionFields) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "language": name_language(transcript.language).name.lower(),
        "duration": round(transcript.duration_s, 3),
        "text": transcript.text,
    }
    if fields.words:
        # As in OpenAI's transcripts, the text has punctuation, but the words have none.
        answer["words"] = [
            {"word": text, "start": word.start, "end": word.end}
            for word in transcript.words
            if (text := unpunctuated(word.word))
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
