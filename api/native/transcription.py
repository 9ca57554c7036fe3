"""POST /stt and GET /stt/languages: transcription of files; POST /audio/verify: detects the
service's watermark in a recording."""

import re
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Literal

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from starlette.responses import Response

from api.http.bodies import KeyTerms, KnownSpeakers, RedactFields, Shown, Switch, rounded
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router, warning_header
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form, validated
from configs.schema.transcription import ProfileName
from pipelines.stt.file import FileRequest, FileTranscript, Grade
from pipelines.stt.formatting import TranscriptStyle, separator_of
from pipelines.stt.subtitles import to_srt, to_vtt
from pipelines.text.redaction import Entity, Redaction, timed_entities

router = make_router("speech to text", scope="stt", visitors=True)
watermarks = make_router("speech to text", scope="stt")
routers = (router, watermarks)

LIMITS = UploadLimits(max_fields=200)  # each key term is a field
LISTS = frozenset({"keyterms", "redact", "known_speakers"})

ResponseFormat = Literal["json", "srt", "vtt", "text"]


class TranscribedWord(BaseModel):
    word: str
    start: float = Field(description="Seconds from the start of the file.")
    end: float
    confidence: Annotated[float, rounded(4)]
    speaker: str | None = Field(default=None, description="Only when `speaker_labels` is true.")


class SpokenUtterance(Shown):
    """The speech of one speaker until another speaks."""

    speaker: str = Field(description="A, B and so on, or the name of a known speaker.")
    start: Annotated[float, rounded(2)] = Field(description="Seconds from the start of the file.")
    end: Annotated[float, rounded(2)]
    text: str


class TranscriptionResult(BaseModel):
    """The text of a file."""

    text: str
    language: str = Field(description="The code that was given or detected.")
    confidence: float
    duration: float = Field(description="Seconds of audio, counted while decoding.")
    words: list[TranscribedWord] | None = Field(
        default=None, description="Only when `timestamps` is true."
    )
    entities: list[Entity] | None = Field(default=None, description="With `redact_mode` `mark`.")
    utterances: list[SpokenUtterance] | None = Field(
        default=None, description="Only when `speaker_labels` or `multichannel` is true."
    )
    warnings: list[str] | None = Field(
        default=None, description="Why words may be missing, such as speech that is very quiet."
    )


class LanguageItem(BaseModel):
    code: str = Field(description="ISO 639-1, or 639-3 where there is no shorter code.")
    name: str
    native_name: str
    grade: Grade | None = Field(
        description="How well the model writes it: good with at most 20 % of characters wrong, weak"
        " with more than 50 %. Null where it was not measured."
    )
    supported_models: list[ProfileName]


class LanguageList(BaseModel):
    languages: list[LanguageItem]


def _all_or_ids(value: object) -> object:
    """Of a form: true or false, as a list of one text, or ids."""
    only = value[0].strip().lower() if isinstance(value, list) and len(value) == 1 else value
    return only if only in ("true", "false") else value


class RecordingFields(RedactFields):
    """How a recording is transcribed; a form has only strings. Unknown fields are ignored."""

    language: Annotated[
        str, AfterValidator(lambda code: re.sub("^(?i:auto)$", "", code.strip()))
    ] = Field(default="", max_length=35, description="A language code; detected when absent.")
    model: ProfileName = "general"
    timestamps: Switch = Field(default=False, description="Adds `words`.")
    speaker_labels: Switch = Field(
        default=False, description="Adds `utterances`, and `speaker` in each word."
    )
    multichannel: Switch = Field(
        default=False,
        description="Two channels are the speakers A and B of `utterances`; each is charged.",
    )
    keyterms: KeyTerms = []
    profanity_filter: Switch = Field(default=False, description="Masks swear words: `s***`.")
    numerals: Switch = Field(default=False, description="Writes numbers in digits.")
    punctuate: Switch = Field(default=True, description="False: no marks and no capitals.")
    known_speakers: Annotated[KnownSpeakers, BeforeValidator(_all_or_ids)] = False

    def to_request(self, *, words: bool = False) -> FileRequest:
        return FileRequest(
            language=self.language or None,
            profile=self.model,
            words=self.timestamps or words,
            speakers=self.speaker_labels or bool(self.known_speakers),
            multichannel=self.multichannel,
            keyterms=tuple(self.keyterms),
            form=TranscriptStyle(self.numerals, self.profanity_filter, self.punctuate),
            redaction=self.redaction(),
        )


class TranscriptionFields(RecordingFields):
    """The plain fields of the form."""

    response_format: ResponseFormat = "json"


@router.post(
    "/stt",
    summary="Transcribe a file",
    openapi_extra=form_schema("audio", TranscriptionFields),
    responses={
        200: {
            "model": TranscriptionResult,
            "description": "The text; plain when `response_format` is srt, vtt or text",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "text/vtt": {"schema": {"type": "string"}},
                "application/x-subrip": {"schema": {"type": "string"}},
            },
        }
    },
)
async def transcribe(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Response:
    """Transcribes a recording. If the client disconnects, the work stops.

    It is charged from the 21st time in an hour on.

    Without credit a large form is refused before it is read, any other before it is decoded.
    """
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    async with receive_form(request, LIMITS, check) as received:
        audio = received.file("audio")
        fields = validated(TranscriptionFields, received.with_lists(LISTS))
        form = fields.response_format
        known = await speech.speakers.named(principal, fields.known_speakers)
        asked = replace(fields.to_request(words=form in ("srt", "vtt")), known=known)
        to_answer = partial(answer, form, fields.timestamps, marks=fields.redaction("mark"))
        work = speech.transcription.transcribe(
            principal.workspace_id, operation, audio.path, asked, to_answer
        )
        return await while_connected(request.receive, work)


@router.get("/stt/languages", summary="List the supported languages")
async def list_languages(speech: SpeechDep) -> LanguageList:
    """Every language of the model, with its English and its own name."""
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
    """The transcript in that form; JSON has `words` with `timestamps`, `entities` with `marks`."""
    separator, headers = separator_of(transcript.language), warning_header(transcript.warnings)
    match form:
        case "text" if transcript.utterances is not None:
            lines = (f"{one.speaker}: {one.text}\n" for one in transcript.utterances)
            return PlainTextResponse("".join(lines), headers=headers)
        case "text":
            return PlainTextResponse(transcript.text, headers=headers)
        case "srt":
            srt = to_srt(transcript.turns, separator)
            return Response(srt, headers=headers, media_type="application/x-subrip; charset=utf-8")
        case "vtt":
            vtt = to_vtt(transcript.turns, separator)
            return Response(vtt, headers=headers, media_type="text/vtt")
        case "json":
            result = transcription_result(transcript, timestamps, marks)
            return JSONResponse(result.model_dump(exclude_none=True))


def transcription_result(
    transcript: FileTranscript, timestamps: bool, marks: Redaction | None
) -> TranscriptionResult:
    """With `words` if `timestamps`, with `entities` if `marks`."""
    words = utterances = None
    marks = marks and replace(marks, language=transcript.language)
    if timestamps:
        words = [
            TranscribedWord(**asdict(word), speaker=speaker)
            for speaker, turn in transcript.turns
            for word in turn
        ]
    if transcript.utterances is not None:
        utterances = [SpokenUtterance.model_validate(one) for one in transcript.utterances]
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
    """A segment of the recording."""

    start: Annotated[float, rounded(2)] = Field(
        validation_alias="start_s", description="Seconds from the start of the file."
    )
    end: Annotated[float, rounded(2)] = Field(validation_alias="end_s")
    likelihood: Annotated[float, rounded(3)] = Field(description="Of a watermark, 0 to 1.")


class Verification(Shown):
    """The result of the watermark detection."""

    watermarked: bool = Field(
        validation_alias="is_marked",
        description="Whether a segment carries this service's watermark.",
    )
    likelihood: Annotated[float, rounded(3)] = Field(description="The highest of all `stretches`.")
    duration: Annotated[float, rounded(3)] = Field(
        validation_alias="duration_s", description="Seconds of audio."
    )
    stretches: list[MarkedStretch] = Field(validation_alias="segments")


@watermarks.post(
    "/audio/verify",
    summary="Detect the watermark in a recording",
    openapi_extra=form_schema("audio"),
)
async def verify(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Verification:
    """Detects speech that instances of this service watermarked; 404 if WATERMARK is off.

    A negative result proves nothing: earlier speech, or that of other services, has no watermark.
    It costs as much as a transcription.
    """
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    async with receive_form(request, before_large=check) as form:
        audio = form.file("audio")
        work = speech.transcription.verify(
            principal.workspace_id, operation, audio.path, speech.decoder, speech.watermarks
        )
        return Verification.model_validate(await while_connected(request.receive, work))
