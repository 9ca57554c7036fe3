"""POST /stt and GET /stt/languages: transcription of files."""

from dataclasses import asdict
from functools import partial
from typing import Annotated, Literal

from fastapi import Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field, field_validator
from starlette.responses import Response

from api.http.bodies import KeyTerms, KnownSpeakers, Shown, rounded
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form, validated
from configs.schema.transcription import ProfileName
from pipelines.stt.file import FileRequest, FileTranscript, separator_of
from pipelines.stt.formatting import TranscriptStyle
from pipelines.stt.subtitles import to_srt, to_vtt

router = make_router("speech to text", scope="stt")

LIMITS = UploadLimits(max_fields=200)  # each key term is a field

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

_SWITCHES = (
    "timestamps",
    "speaker_labels",
    "profanity_filter",
    "numerals",
    "punctuate",
    "multichannel",
)

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
    utterances: list[SpokenUtterance] | None = Field(
        default=None, description="Only when `speaker_labels` or `multichannel` is true."
    )


class LanguageItem(BaseModel):
    code: str = Field(description="ISO 639-1, or 639-3 where there is no shorter code.")
    name: str
    native_name: str
    supported_models: list[ProfileName]


class LanguageList(BaseModel):
    languages: list[LanguageItem]


class TranscriptionFields(BaseModel):
    """The plain fields of the form; a form has only strings. Unknown fields are ignored."""

    language: str = Field(
        default="", max_length=35, description="A language code; detected when absent."
    )
    model: ProfileName = "general"
    timestamps: bool = Field(default=False, description="Adds `words`.")
    speaker_labels: bool = Field(
        default=False, description="Adds `utterances`, and `speaker` in each word."
    )
    multichannel: bool = Field(
        default=False,
        description="Two channels are the speakers A and B of `utterances`; each is charged.",
    )
    known_speakers: KnownSpeakers = False
    keyterms: KeyTerms = []
    profanity_filter: bool = Field(default=False, description="Masks swear words: `s***`.")
    numerals: bool = Field(default=False, description="Writes numbers in digits.")
    punctuate: bool = Field(default=True, description="False: no marks and no capitals.")
    response_format: ResponseFormat = "json"

    @field_validator("language", mode="after")
    @classmethod
    def _detect(cls, value: str) -> str:
        return "" if value.strip().lower() == "auto" else value.strip()

    @field_validator("known_speakers", mode="before")
    @classmethod
    def _all_or_ids(cls, value: object) -> object:
        only = value[0].strip().lower() if isinstance(value, list) and len(value) == 1 else None
        return _BOOLEANS.get(only, value) if only is not None else value

    @field_validator(*_SWITCHES, mode="before")
    @classmethod
    def _to_bool(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if (text := value.strip().lower()) not in _BOOLEANS:
            raise ValueError("must be true or false")
        return _BOOLEANS[text]


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
    async with receive_form(request, LIMITS, check) as form:
        audio = form.file("audio")
        fields = validated(TranscriptionFields, form.with_lists({"keyterms", "known_speakers"}))
        asked = FileRequest(
            language=fields.language or None,
            profile=fields.model,
            words=fields.timestamps or fields.response_format in ("srt", "vtt"),
            speakers=fields.speaker_labels or bool(fields.known_speakers),
            known=await speech.speakers.known(principal.workspace_id, fields.known_speakers),
            multichannel=fields.multichannel,
            keyterms=tuple(fields.keyterms),
            form=TranscriptStyle(fields.numerals, fields.profanity_filter, fields.punctuate),
        )
        work = speech.transcription.transcribe(
            principal.workspace_id, operation, audio.path, asked, partial(_answer, fields)
        )
        return await while_connected(request.receive, work)


@router.get("/stt/languages", summary="List the supported languages")
async def list_languages(speech: SpeechDep) -> LanguageList:
    """Every language of the model, with its English and its own name."""
    pipeline = speech.transcription.pipeline
    return LanguageList(
        languages=[
            LanguageItem(**asdict(names), supported_models=list(pipeline.profiles))
            for names in await pipeline.languages()
        ]
    )


def _answer(fields: TranscriptionFields, transcript: FileTranscript) -> Response:
    separator = separator_of(transcript.language)
    match fields.response_format:
        case "text" if transcript.utterances is not None:
            lines = (f"{one.speaker}: {one.text}\n" for one in transcript.utterances)
            return PlainTextResponse("".join(lines))
        case "text":
            return PlainTextResponse(transcript.text)
        case "srt":
            srt = to_srt(transcript.turns, separator)
            return Response(srt, media_type="application/x-subrip; charset=utf-8")
        case "vtt":
            return Response(to_vtt(transcript.turns, separator), media_type="text/vtt")
        case "json":
            result = _result(transcript, fields.timestamps)
            return JSONResponse(result.model_dump(exclude_none=True))


def _result(transcript: FileTranscript, timestamps: bool) -> TranscriptionResult:
    words = utterances = None
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
    )
