"""Jobs: transcriptions of long recordings, and speech of long texts."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

from anyio import to_thread
from fastapi import Path, Query, Request
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from api.http.bodies import Done, Id, OneLine, Page, Paged, Shown, Switch, rounded
from api.http.errors import InvalidField
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.uploads import BINARY, MultipartForm, UploadLimits, form_schema, receive_form
from api.native.pronunciations import MAX_NAMED
from api.native.speech import Ratio
from api.native.transcription import LIMITS, LISTS, RecordingFields, ResponseFormat, answer
from api.services import SpeechServices
from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from models.errors import EngineLost
from pipelines.accounts.authentication import Principal
from pipelines.billing.billing import to_usd
from pipelines.jobs import speech as speech_jobs
from pipelines.jobs import transcription as transcription_jobs
from pipelines.jobs.book_voices import ChapterVoice, chapter_voices, first_voice, language_warnings
from pipelines.jobs.documents.book import Book, SpokenChapter, clean_title
from pipelines.jobs.documents.document import read_document
from pipelines.jobs.docx import MEDIA_TYPE, to_docx
from pipelines.jobs.file_kinds import check_recording
from pipelines.text.language_names import name_language
from pipelines.tts.dictionaries import DictionaryRef
from pipelines.tts.pipeline import SpeechPipeline
from pipelines.tts.reading import SpeechRequest
from pipelines.tts.voices import NOT_READY, AvailableVoice

# `router` admits any key, but a key sees only jobs of the types for which it has the scope.
routers = router, stt, tts = [make_router("jobs", scope=scope) for scope in ("any", "stt", "tts")]

CONFIG = load_yaml(JobsConfig, "jobs")
PUBLIC_STATUSES = {"fetching": "processing", "cancelling": "processing"}
LEAST_MS = 1000  # minimum audio to pay for while the length of a recording is unknown
UPLOAD = replace(LIMITS, max_file_bytes=CONFIG.upload_mb << 20, alternative="; send it in `parts`")
PART = UploadLimits(max_file_bytes=CONFIG.part_mb << 20)
DOCUMENT = UploadLimits(max_file_bytes=CONFIG.document_mb << 20)
RECORDING = f"MP3, WAV, FLAC, OGG, M4A, AAC or WebM; at most {CONFIG.upload_mb} MB and "
RECORDING += f"{CONFIG.most_hours:g} hours."
TEXT = "UTF-8, UTF-16 or Windows-1252 text or SSML, Markdown (by file name) or EPUB; at most "
TEXT += f"{CONFIG.document_mb} MB and {CONFIG.most_characters:,} characters."
WARNINGS = (
    "Names the chapters whose language their voice does not speak, and the first page that is "
    "missing or damaged in an EPUB."
)
DOCUMENT_FORM = {**BINARY, "description": TEXT}


class ShownJob(Shown):
    """A job and its progress."""

    id: Id
    type: Literal["transcription", "speech", "batch"] = Field(validation_alias="kind")
    name: str = Field(description="File name, or title of the text.")
    status: Annotated[
        Literal["uploading", "processing", "completed", "failed", "cancelled", "expired"],
        BeforeValidator(lambda status: PUBLIC_STATUSES.get(status, status)),
    ]
    progress: Annotated[float, rounded(3)] = Field(description="Share of work done, 0 to 1.")
    duration: Annotated[float, rounded(3)] = Field(
        validation_alias="seconds", description="Seconds of audio processed so far."
    )
    created_at: datetime
    waiting: str | None = Field(
        default=None,
        description="Why a job that is `processing` waits or makes no progress; else null.",
    )
    estimated_completion: datetime | None
    finished_at: datetime | None
    error: str | None
    message: str | None = Field(validation_alias="reason")
    cost: float = Field(
        default=0, description="USD of the work done, charged when the job ends or is deleted."
    )
    credit_held: float = Field(
        default=0, description="USD set aside for the whole job until it ends."
    )
    received: list[int] = Field(default=[], description="Parts received, while `uploading`.")
    audio_url: str | None = Field(default=None, description="URL of the speech, valid for a day.")
    chapters: list[SpokenChapter] = Field(default=[], description="Chapters, with times (s).")
    titles: list[str] = Field(
        default=[], description="Titles of the chapters, in the answer to a new job."
    )
    voices: list[str] = Field(default=[], description="Names of the voices of a speech job.")
    selection: str = Field(
        default="", description="The field `chapters` of a speech job; empty for the default."
    )
    output_format: speech_jobs.BookFormat | None = Field(
        default=None, description="Format of a speech job."
    )
    warnings: list[str] = Field(default=[], description=f"{WARNINGS} Only for a new job.")


class TranscriptionJobFields(RecordingFields):
    """Options of a transcription job as form fields. Unknown fields are ignored."""

    name: OneLine = ""
    timestamps: Switch = Field(default=True, description="Adds `words`; srt and vtt need them.")
    redact_mode: Literal["mask"] | None = None
    url: str = Field(default="", description="HTTPS URL of the recording.")
    parts: int | None = Field(
        default=None, ge=1, le=CONFIG.most_parts, description="Number of parts to follow."
    )


class SpeechJobFields(BaseModel):
    """Options of a speech job as form fields. Unknown fields are ignored."""

    title: OneLine = Field(default="", description="Default: the document's title.")
    speed: Ratio = 1.0
    chapters: str = Field(
        default="",
        max_length=8000,
        pattern=r"^([0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*)?$",
        description="Chapters to read, such as `1,3-5`, by the `number` of the estimate. Default: "
        "all that are not `extra`; if all are `extra`, every chapter.",
    )
    voice_id: str = Field(default="", max_length=100, description="Overrides `voice`.")
    voice: str = Field(
        default="",
        max_length=200,
        description="Voice name. Default: by the language of each chapter.",
    )
    enhance: bool = True
    pitch: Ratio = 1.0
    pronunciations: list[Annotated[str, Field(max_length=100)]] = Field(
        default=[], max_length=MAX_NAMED, description="Dictionary ids."
    )
    output_format: speech_jobs.BookFormat = "m4b"


class ChapterEstimate(BaseModel):
    number: int = Field(description="Number of the chapter, from 1, as in `chapters`.")
    title: str
    characters: int = Field(description="Billable characters, at most.")
    price: float = Field(description="Price in USD, at most.")
    estimated_seconds: float
    extra: bool = Field(
        description="True for contents, copyright, licence, index and the like, which listeners "
        "usually leave out."
    )
    chosen: bool = Field(description="True if a job with these `chapters` reads it.")
    language: str = Field(description="Language of the text, as an ISO 639-1 code.")
    language_name: str = Field(description="English name of the language.")
    voice: str = Field(description="Name of the voice that reads it.")


class LeftOutParts(Shown):
    notes: int = Field(description="Footnotes and endnotes; repeated citations count once.")
    pages: int = Field(description="Pages of an EPUB outside of its reading order.")
    hidden: int = Field(
        description="Elements with text that an EPUB hides, by an attribute or an inline style."
    )
    page_numbers: int = Field(description="Lines of plain text that are page numbers.")
    front_matter: bool = Field(description="Metadata fields at the top of a Markdown file.")


class SpeechJobEstimate(BaseModel):
    """What a job would read. The totals are those of the chosen chapters."""

    title: str
    author: str
    characters: int
    price: float
    estimated_seconds: float
    chapters: list[ChapterEstimate]
    left_out: LeftOutParts
    warnings: list[str] = Field(description=WARNINGS)


class TranscriptQuery(BaseModel):
    format: Literal[ResponseFormat, "docx"] = "json"


@stt.post(
    "/jobs/transcriptions",
    status_code=201,
    summary="Transcribe a long recording",
    openapi_extra=form_schema(
        "audio", TranscriptionJobFields, {**BINARY, "description": RECORDING}, is_required=False
    ),
)
async def transcribe_long(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> ShownJob:
    """Takes a file, a `url`, or the number of `parts` that will be uploaded afterwards.

    The job runs while the machine is otherwise idle. The price for the full length is held when the
    job starts; only audio that is transcribed is charged.
    """
    check = partial(speech.jobs.check_room, principal, "transcription", LEAST_MS, operation)
    async with receive_form(request, UPLOAD, check) as form:
        fields = form.read(TranscriptionJobFields, LISTS)
        upload = form.file("audio") if form.files else None
        if (upload is not None) + bool(fields.url) + (fields.parts is not None) != 1:
            reason = "send one of: the recording, its url, or the number of parts to follow"
            raise InvalidField("audio", reason)
        if fields.url:
            speech.check_url(fields.url)
        if upload is not None:
            await to_thread.run_sync(check_recording, upload.path)
        recognition = await speech.transcription.pipeline.resolve(fields.recognition())
        await speech.speakers.named(principal, recognition.known_speakers)  # all must exist
        task = transcription_jobs.TranscriptionTask(
            request=recognition,
            url=fields.url,
            most_s=CONFIG.most_hours * 3600,
            window_s=CONFIG.window_s,
            known_speakers=recognition.known_speakers,
        )
        await check()
        job = await speech.jobs.create(
            principal,
            operation,
            kind="transcription",
            name=fields.name or (clean_title(upload.filename) if upload else "") or "recording",
            options=transcription_jobs.TASK.dump_json(task),
            upload=upload.path if upload else None,
            parts=fields.parts or 0,
            is_fetched=bool(fields.url),
        )
    return await _shown(speech, job)


@stt.put(
    "/jobs/{job_id:uuid}/parts/{number}",
    summary="Upload a part of a recording",
    openapi_extra=form_schema("audio", files=BINARY),
)
async def send_part(
    job_id: UUID,
    number: Annotated[int, Path(ge=1, le=CONFIG.most_parts)],
    request: Request,
    principal: PrincipalDep,
    speech: SpeechDep,
) -> ShownJob:
    """Parts are consecutive byte ranges of one file, numbered from 1. They may arrive in any order,
    and a repeated number replaces the part. The job starts when all parts have arrived."""
    await speech.jobs.check_part(principal, job_id, number)
    async with receive_form(request, PART) as form:
        path = form.file("audio").path
        if number == 1:
            await to_thread.run_sync(check_recording, path)
        await speech.jobs.keep_part(principal, job_id, number, path)
    return await read_job(job_id, principal, speech)


@stt.get(
    "/jobs/{job_id:uuid}/transcript",
    summary="Get the transcript of a job",
    responses={200: {"content": {"text/plain": {}, "application/json": {}, MEDIA_TYPE: {}}}},
)
async def read_transcript(
    job_id: UUID,
    principal: PrincipalDep,
    speech: SpeechDep,
    query: Annotated[TranscriptQuery, Query()],
) -> Response:
    """While the job runs, returns the finished part, which grows by some minutes at a time."""
    results = await speech.jobs.results(principal, job_id)
    transcript = await to_thread.run_sync(transcription_jobs.joined, results)
    if query.format == "docx":
        return Response(await to_thread.run_sync(to_docx, transcript), media_type=MEDIA_TYPE)
    has_words = bool(transcript.words)
    if query.format in ("srt", "vtt") and transcript.segments and not has_words:
        raise InvalidField("format", "the job was created without timestamps")
    return await to_thread.run_sync(answer, query.format, has_words, transcript)


@tts.post(
    "/jobs/speech",
    status_code=201,
    summary="Turn a long text into an audio file with chapters",
    openapi_extra=form_schema("document", SpeechJobFields, DOCUMENT_FORM),
)
async def speak_long(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> ShownJob:
    """Creates a job that speaks a long text or a book as one audio file.

    Chapters start at headings of level 1 and 2 in Markdown, and in plain text at lines such as
    "Chapter 1", "Prologue" or "III. The Letter" after a blank line. In an EPUB, they start at the
    entries of the first two levels of its table of contents, and at each `h1` that comes after text
    of the chapter. If the table of contents is missing or broken, they start at each `h1` and `h2`
    that comes after text. The response lists the `titles` of the chapters.

    Without a `voice`, each chapter is read by the default voice of its language.

    The job runs while the machine is otherwise idle. Its price is held when the job starts.
    """
    check = partial(speech.jobs.check_room, principal, "speech")
    async with receive_form(request, DOCUMENT, partial(check, 1, operation)) as form:
        fields, book, name = await _received(form)
    book = replace(book.only(fields.chapters), title=fields.title or book.title)
    await check(sum(len(chapter.text) for chapter in book.chapters), operation)
    task = _task(fields, book, principal)
    voice, voices = await _voices(speech.synthesis.pipeline, task, book)
    task = replace(
        task,
        request=replace(task.request, voice_id=voice.id),
        voices=tuple(chosen.voice.id for chosen in voices),
    )
    options = speech_jobs.TASK.dump_json(task)
    # Gives files that differ only in their endings different names.
    shown_name = name if name.startswith(f"{book.title}.") else book.title[:200]
    details = {
        "voices": [*dict.fromkeys(chosen.voice.info.name for chosen in voices)],
        "selection": fields.chapters,
        "output_format": fields.output_format,
    }
    job = await speech.jobs.create(
        principal, operation, "speech", shown_name, options, details=details
    )
    titles = [chapter.title for chapter in book.chapters]
    warnings = [*book.warnings, *language_warnings(book.chapters, voices)]
    return await _shown(speech, job, titles=titles, warnings=warnings)


@tts.post(
    "/jobs/speech/estimate",
    summary="Preview the chapters and the price of a long text, free of charge",
    openapi_extra=form_schema("document", SpeechJobFields, DOCUMENT_FORM),
)
async def estimate_speech(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> SpeechJobEstimate:
    """Takes and checks the same form as `POST /jobs/speech`, but creates no job."""
    billing = speech.billing
    check = partial(billing.check_credit, principal.workspace_id, "tts", 1, operation)
    async with receive_form(request, DOCUMENT, check) as form:
        fields, book, _ = await _received(form)
    chosen = book.only(fields.chapters)
    chosen_ids = {id(chapter) for chapter in chosen.chapters}
    task = _task(fields, book, principal)
    _, voices = await _voices(speech.synthesis.pipeline, replace(task, book=chosen), book)
    read_by = {id(chapter): voice for chapter, voice in zip(book.chapters, voices, strict=True)}

    def estimates() -> list[ChapterEstimate]:
        chapters = zip(book.chapters, speech_jobs.estimates(task, billing), voices, strict=True)
        return [
            ChapterEstimate(
                number=number,
                title=chapter.title,
                characters=characters,
                price=0.0 if principal.is_owner else to_usd(billing.cost("tts", characters)),
                estimated_seconds=round(seconds, 1),
                extra=chapter.is_extra,
                chosen=id(chapter) in chosen_ids,
                language=reader.language,
                language_name=name_language(reader.language).name,
                voice=reader.voice.info.name,
            )
            for number, (chapter, (characters, seconds), reader) in enumerate(chapters, start=1)
        ]

    chapters = await to_thread.run_sync(estimates)
    read_voices = [read_by[id(chapter)] for chapter in chosen.chapters]
    read = [chapter for chapter in chapters if chapter.chosen]
    return SpeechJobEstimate(
        title=fields.title or book.title,
        author=book.author,
        characters=sum(chapter.characters for chapter in read),
        price=round(sum(chapter.price for chapter in read), 6),
        estimated_seconds=round(sum(chapter.estimated_seconds for chapter in read), 1),
        chapters=chapters,
        left_out=LeftOutParts.model_validate(book.left_out),
        warnings=[*book.warnings, *language_warnings(chosen.chapters, read_voices)],
    )


def _task(fields: SpeechJobFields, book: Book, principal: Principal) -> speech_jobs.SpeechTask:
    request = SpeechRequest(
        text="",
        voice_id=fields.voice_id or None,
        voice=fields.voice or None,
        speed=fields.speed,
        pitch=fields.pitch,
        enhance=fields.enhance,
        workspace_id=principal.workspace_id,
        pronunciations=tuple(DictionaryRef(id=identity) for identity in fields.pronunciations),
    )
    return speech_jobs.SpeechTask(book, request, fields.output_format, CONFIG.block_characters)


async def _received(form: MultipartForm) -> tuple[SpeechJobFields, Book, str]:
    """Reads the options and the document of a form, and the document's file name."""
    fields = form.read(SpeechJobFields, {"pronunciations"})
    file = form.file("document")
    data = await to_thread.run_sync(file.path.read_bytes)
    name = clean_title(file.filename)
    return fields, await to_thread.run_sync(read_document, data, name, CONFIG.most_characters), name


async def _voices(
    pipeline: SpeechPipeline, task: speech_jobs.SpeechTask, book: Book
) -> tuple[AvailableVoice, list[ChapterVoice]]:
    """Chooses the voice of a task and, for a book, the voice of each chapter. Raises EngineLost
    while a model is not up that may have a better voice, which the whole book would then lack."""
    voice = await first_voice(task, pipeline)
    is_named = bool(task.request.voice_id or task.request.voice)
    voices = await chapter_voices(book, pipeline, voice, is_named=is_named)
    if any(chosen.is_makeshift for chosen in (voice, *(chapter.voice for chapter in voices))):
        raise EngineLost(f"{NOT_READY}, or name a voice")
    return voice, voices


@router.get("/jobs", summary="List jobs")
async def list_jobs(principal: PrincipalDep, speech: SpeechDep, query: Paged) -> Page[ShownJob]:
    """Jobs come newest first, without `received`, `audio_url` and `chapters`."""
    jobs, total = await speech.jobs.page(principal, query.page, query.limit)
    waits = await speech.jobs.waits(jobs)
    return query.answer([_with_costs(speech, job, waits) for job in jobs], total)


@router.get("/jobs/{job_id:uuid}", summary="Get a job")
async def read_job(job_id: UUID, principal: PrincipalDep, speech: SpeechDep) -> ShownJob:
    row, received, url, chapters = await speech.jobs.get(principal, job_id)
    return await _shown(speech, row, received=received, audio_url=url, chapters=chapters)


async def _shown(speech: SpeechServices, job: Any, **more: object) -> ShownJob:
    return _with_costs(speech, job, await speech.jobs.waits([job]), **more)


def _with_costs(
    speech: SpeechServices, job: Any, waits: Mapping[UUID, str], **more: object
) -> ShownJob:
    """Returns a job with its price, what is held for it, and why it waits."""
    cost, held = map(to_usd, speech.jobs.costs(job))
    facts = {"cost": cost, "credit_held": held, "waiting": waits.get(job.id)}
    return ShownJob.model_validate(job).model_copy(update=facts | (job.details or {}) | more)


@router.delete("/jobs/{job_id:uuid}", summary="Cancel and delete a job")
async def delete_job(job_id: UUID, principal: PrincipalDep, speech: SpeechDep) -> Done:
    """Also deletes the results. The finished part of a running job is charged."""
    await speech.jobs.delete(principal, job_id)
    return Done(message="the job is deleted")
