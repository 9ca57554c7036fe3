"""Transcription of files (`/stt`), its languages, and detection of watermarks (`/audio/verify`)."""

from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, BeforeValidator, Field, field_validator
from starlette.responses import Response

from api.callers import CallerDep
from api.http.bodies import RedactFields, Shown, Switch, rounded
from api.http.errors import ApiError
from api.http.routing import SpeechDep, make_router, warning_header
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form
from configs.schema.personal_data import Redaction
from configs.schema.transcription import ProfileName
from models.stt.options import (
    LANGUAGE,
    KeyTerms,
    KnownSpeakers,
    RecognitionOptions,
    TranscriptStyle,
)
from pipelines.stt.file import LONGER, FileTranscript
from pipelines.stt.subtitles import to_srt, to_vtt
from pipelines.text.language_names import Grade
from pipelines.text.redaction import Entity, timed_entities

router = make_router("speech to text", scope="stt", visitors=True)
watermarks = make_router("speech to text", scope="stt")
routers = (router, watermarks)

# Each key term is sent as a separate field.
LIMITS = UploadLimits(max_fields=200, alternative=LONGER)
LISTS = frozenset({"keyterms", "redact", "known_speakers"})

ResponseFormat = Literal["json", "srt", "vtt", "text"]


class TranscribedWord(BaseModel):
    word: str
    start: float = Field(description="Start time in the file, in seconds.")
    end: float
    confidence: Annotated[float, rounded(4)]
    speaker: str | None = Field(default=None, description="Speaker, if speakers are labelled.")


class SpokenUtterance(Shown):
    """Uninterrupted speech of one speaker."""

    speaker: str = Field(description="A, B, …, or the name of a known speaker.")
    start: Annotated[float, rounded(2)] = Field(description="Start time in the file, in seconds.")
    end: Annotated[float, rounded(2)]
    text: str


class TranscriptionResult(BaseModel):
    """The transcript of a file."""

    text: str
    language: str = Field(description="Language code, as given or detected.")
    confidence: float
    duration: float = Field(description="Length of the decoded audio, in seconds.")
    words: list[TranscribedWord] | None = Field(
        default=None, description="Words, if `timestamps` is true."
    )
    entities: list[Entity] | None = Field(
        default=None, description="Entities, if `redact_mode` is `mark`."
    )
    utterances: list[SpokenUtterance] | None = Field(
        default=None, description="Utterances, if `speaker_labels` or `multichannel` is true."
    )
    warnings: list[str] | None = Field(
        default=None,
        description="Reasons why words may be missing or unexpected: very quiet speech, or speech "
        "in another language than the given one.",
    )


class LanguageItem(BaseModel):
    code: str = Field(description="ISO 639-1 code; ISO 639-3 if there is none.")
    name: str
    native_name: str
    grade: Grade | None = Field(
        description="Recognition quality: `good` means a character error rate of at most 20 %, "
        "`weak` more than 50 %. Null if not measured."
    )
    supported_models: list[ProfileName]


class LanguageList(BaseModel):
    languages: list[LanguageItem]


def _all_or_ids(value: object) -> object:
    """Converts a form's list ["true"] or ["false"] to its text; keeps lists of ids."""
    only = value[0].strip().lower() if isinstance(value, list) and len(value) == 1 else value
    return only if only in ("true", "false") else value


Flag = TypeVar("Flag", bound=bool)


def _flag(description: str, *, default: bool = False) -> Any:
    return Field(default=default, description=description)


class RecognitionFields(RedactFields, Generic[Flag]):
    """Options shared by recordings and `/ws/stt`; a Flag is a `Switch` in forms, a bool in JSON."""

    keyterms: KeyTerms = []
    profanity_filter: Flag = _flag("Masks profanity, as in `s***`.")
    numerals: Flag = _flag("Writes numbers as digits.")
    punctuate: Flag = _flag("False removes punctuation and capitals.", default=True)
    speaker_labels: Flag = _flag("Adds `utterances`, and a `speaker` to each word.")
    known_speakers: KnownSpeakers = False

    def recognition(self) -> RecognitionOptions:
        return RecognitionOptions(
            speakers=self.speaker_labels,
            known_speakers=self.known_speakers,
            keyterms=tuple(self.keyterms),
            form=TranscriptStyle(
                numerals=self.numerals,
                profanity_filter=self.profanity_filter,
                punctuate=self.punctuate,
            ),
            redaction=self.redaction(),
        )


class RecordingFields(RecognitionFields[Switch]):
    """Transcription options as form fields. Unknown fields are ignored."""

    language: str = Field(default="", max_length=35, description=LANGUAGE)
    model: ProfileName = "general"
    timestamps: Switch = Field(default=False, description="Adds `words` with times.")
    multichannel: Switch = Field(
        default=False,
        description="Transcribes two channels as the speakers A and B. Each channel is charged.",
    )
    known_speakers: Annotated[KnownSpeakers, BeforeValidator(_all_or_ids)] = False

    @field_validator("model", mode="before")
    @classmethod
    def _exists(cls, name: object) -> object:
        models = get_args(ProfileName)
        if isinstance(name, str) and name not in models:
            message = f"model: no model has that name; use {', '.join(models)}"
            raise ApiError("model_not_found", message, param="model")
        return name

    def recognition(self) -> RecognitionOptions:
        return replace(
            super().recognition(),
            language=self.language or None,
            profile=self.model,
            words=self.timestamps,
            multichannel=self.multichannel,
        )


class TranscriptionFields(RecordingFields):
    """Transcription options and the response format, as form fields."""

    response_format: ResponseFormat = "json"

    def recognition(self) -> RecognitionOptions:
        words = self.timestamps or self.response_format in ("srt", "vtt")
        return replace(super().recognition(), words=words)


@router.post(
    "/stt",
    summary="Transcribe a file",
    openapi_extra=form_schema("audio", TranscriptionFields),
    responses={
        200: {
            "model": TranscriptionResult,
            "description": "The transcript; not JSON if `response_format` is srt, vtt or text",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "text/vtt": {"schema": {"type": "string"}},
                "application/x-subrip": {"schema": {"type": "string"}},
            },
        }
    },
)
async def transcribe(request: Request, caller: CallerDep) -> Response:
    """Transcribes a recording. If the client disconnects, transcription stops.

    The first 20 disconnects in an hour are free; after that, the whole file is charged.

    Without credit, a large upload is refused before it is read, a small one before it is decoded.
    """
    async with receive_form(request, LIMITS, caller.check_credit) as received:
        path = received.file("audio").path
        fields = received.read(TranscriptionFields, LISTS)
        speakers = await caller.speech.speakers.named(caller.principal, fields.known_speakers)
        marks = fields.redaction("mark")
        to_answer = partial(answer, fields.response_format, fields.timestamps, marks=marks)
        return await caller.transcribe(request, path, fields.recognition(), to_answer, speakers)


@router.get("/stt/languages", summary="List the supported languages")
async def list_languages(speech: SpeechDep) -> LanguageList:
    """Returns every language of the model, with its English and native name."""
    pipeline = speech.transcription.pipeline
    return LanguageList(
        languages=[
            LanguageItem(
                **asdict(language.names),
                grade=language.grade,
                supported_models=list(pipeline.profiles),
            )
            for language in await pipeline.languages()
        ]
    )


def answer(
    form: ResponseFormat,
    timestamps: bool,
    transcript: FileTranscript,
    marks: Redaction | None = None,
) -> Response:
    """Renders a transcript; JSON has `words` with `timestamps`, and `entities` with `marks`."""
    headers = warning_header(transcript.warnings)
    match form:
        case "text" if transcript.utterances is not None:
            turns = transcript.utterances
            lines = (f"{utterance.speaker}: {utterance.text}\n" for utterance in turns)
            return PlainTextResponse("".join(lines), headers=headers)
        case "text":
            return PlainTextResponse(transcript.text, headers=headers)
        case "srt":
            srt = to_srt(transcript.turns, transcript.language)
            return Response(srt, headers=headers, media_type="application/x-subrip; charset=utf-8")
        case "vtt":
            vtt = to_vtt(transcript.turns, transcript.language)
            return Response(vtt, headers=headers, media_type="text/vtt")
        case "json":
            result = transcription_result(transcript, timestamps, marks)
            return JSONResponse(result.model_dump(exclude_none=True))


def transcription_result(
    transcript: FileTranscript, timestamps: bool, marks: Redaction | None
) -> TranscriptionResult:
    """Converts a transcript; it has `words` with `timestamps`, and `entities` with `marks`."""
    words = utterances = None
    marks = marks and replace(marks, language=transcript.language)
    if timestamps:
        words = [
            TranscribedWord(**asdict(word), speaker=speaker)
            for speaker, turn in transcript.turns
            for word in turn
        ]
    if transcript.utterances is not None:
        utterances = [*map(SpokenUtterance.model_validate, transcript.utterances)]
    return TranscriptionResult(
        text=transcript.text,
        language=transcript.language,
        confidence=round(transcript.confidence, 4),
        duration=round(transcript.duration_s, 3),
        words=words,
        utterances=utterances,
        warnings=[*transcript.warnings] or None,
        entities=marks and timed_entities(transcript.text, marks, transcript.words),
    )


class MarkedStretch(Shown):
    """A segment of the recording, with its watermark score."""

    start: Annotated[float, rounded(2)] = Field(
        validation_alias="start_s", description="Start time in the file, in seconds."
    )
    end: Annotated[float, rounded(2)] = Field(validation_alias="end_s")
    likelihood: Annotated[float, rounded(3)] = Field(description="Watermark likelihood, 0 to 1.")


class Verification(Shown):
    """The result of the watermark detection."""

    watermarked: bool = Field(
        validation_alias="is_marked",
        description="True if any segment carries this service's watermark.",
    )
    likelihood: Annotated[float, rounded(3)] = Field(description="Highest likelihood of a segment.")
    duration: Annotated[float, rounded(3)] = Field(
        validation_alias="duration_s", description="Length of the audio, in seconds."
    )
    stretches: list[MarkedStretch] = Field(validation_alias="segments")


@watermarks.post("/audio/verify", summary="Detect a watermark", openapi_extra=form_schema("audio"))
async def verify(request: Request, caller: CallerDep) -> Verification:
    """Detects the watermark that this service adds to speech. Returns 404 if WATERMARK is off.

    A negative result proves nothing: older speech and speech of other services have no watermark.
    Detection costs as much as transcription.
    """
    speech = caller.speech
    async with receive_form(request, before_large=caller.check_credit) as form:
        path = form.file("audio").path
        work = speech.transcription.verify(
            caller.workspace_id, caller.operation, path, speech.decoder, speech.watermarks
        )
        return Verification.model_validate(await while_connected(request.receive, work))
