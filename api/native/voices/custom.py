"""Voices: all available ones, and a workspace's custom voices and enrolled speakers."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query, Request
from pydantic import AfterValidator, BaseModel, Field, field_validator

from api.http.bodies import (
    NOT_BLANK,
    Done,
    Id,
    OneLine,
    Page,
    Paged,
    PageQuery,
    RequestModel,
    Shown,
)
from api.http.errors import ApiError
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, VoicesDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import (
    BINARY,
    MAX_FILE_BYTES,
    MultipartForm,
    Upload,
    UploadLimits,
    form_schema,
    receive_form,
)
from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig, SampleRules
from configs.settings import BRAND
from db.database import iso_moment
from pipelines.text.language_names import Grade, LanguageNames, grade_of, name_language
from pipelines.tts.voices import AvailableVoice
from pipelines.voices.checks import SampleFile
from pipelines.voices.consent import ConsentPurpose
from pipelines.voices.voice_object import (
    CustomVoice,
    Moment,
    NewVoice,
    VoiceGenderGiven,
    VoiceStatus,
    custom_voice,
)

router = make_router("voices", scope="voices")
for_visitors = make_router("voices", scope="any", visitors=True)
routers = (router, for_visitors)

FIELDS = ("files", "files[]")  # names of the field with a list of files
SHOWN_NAME = 80  # characters of a file's name quoted in a message
_CONFIG = load_yaml(CustomVoicesConfig, "custom_voices")
VoiceName = Annotated[OneLine, NOT_BLANK]


class VoiceLabels(BaseModel):
    language: str = Field(description="ISO 639-1 code.")
    language_name: str
    gender: Literal["male", "female"]
    accent: Literal["American", "British", "Indian", "Neutral"]


class DefaultVoice(BaseModel):
    """An available voice."""

    voice_id: str
    name: str
    model: str
    labels: VoiceLabels
    description: str | None
    categories: list[str]
    voice_type: Literal["cloned", "professional"]
    is_native: bool = Field(
        description="True for a stock voice trained on speakers of its language; false for a "
        "custom voice, and for one with the timbre of another language's voice."
    )
    grade: Grade | None = Field(
        description="How well a recogniser understands the voice: `good` means a character error "
        "rate of at most 20 %, `weak` more than 50 %. Null if not measured."
    )
    available_tiers: list[str]


class DefaultVoices(BaseModel):
    """All voices that a request can use."""

    success: bool = True
    message: str
    data: list[DefaultVoice]


@for_visitors.get("/default-voices", summary="List the available voices")
async def list_default_voices(principal: PrincipalDep, voices: VoicesDep) -> DefaultVoices:
    """Returns the available voices, by language and name. Only keys with the scope `voices` get the
    voices of the workspace."""
    is_mine = "voices" in principal.scopes and not principal.is_visitor
    mine = principal.workspace_id if is_mine else None
    listed = [*map(_item, await voices.custom.directory.voices(mine))]
    listed.sort(key=lambda voice: (voice.labels.language_name, voice.name, voice.voice_id))
    return DefaultVoices(message=f"{len(listed)} voices", data=listed)


def _item(voice: AvailableVoice) -> DefaultVoice:
    info = voice.info
    return DefaultVoice(
        voice_id=voice.id,
        name=info.name,
        model=f"{BRAND} {(voice.model.tier or 'quality').capitalize()}",
        labels=VoiceLabels(
            language=voice.language,
            language_name=name_language(voice.language).name,
            gender=info.gender,
            accent=info.accent,
        ),
        description=info.description,
        categories=list(info.categories),
        voice_type="professional" if voice.custom is None else "cloned",
        is_native=info.is_native,
        grade=grade_of(info.character_errors),
        available_tiers=[],
    )


class ConsentFields(BaseModel):
    """Form fields for the consent of a speaker. Unknown fields are ignored."""

    name: VoiceName = Field(min_length=1)
    consent: Annotated[str, Field(max_length=2000), AfterValidator(str.strip)] = Field(
        default="", description="What the speaker agreed to. Stored with the voice or speaker."
    )
    consent_token: Annotated[str, AfterValidator(str.strip)] = Field(
        default="",
        max_length=2000,
        description="Token from `POST /consent-sentences`. One of the files must start with "
        "its sentence.",
    )


class VoiceFields(ConsentFields):
    description: Annotated[str, Field(max_length=1000), AfterValidator(str.strip)] = ""
    language: Annotated[str, AfterValidator(str.strip)] = Field(
        default="",
        max_length=35,
        description="Language code such as `es`, or `en-GB` for a British accent. Default: "
        "detected.",
    )
    gender: VoiceGenderGiven = "neutral"

    @field_validator("gender", mode="before")
    @classmethod
    def _empty_is_neutral(cls, value: object) -> object:
        return "neutral" if value == "" else value


def _files_schema(rules: SampleRules, note: str = "") -> dict[str, Any]:
    return {
        "type": "array",
        "items": BINARY,
        "minItems": rules.min_files,
        "maxItems": rules.max_files,
        "description": f"{rules.min_files} to {rules.max_files} recordings of one speaker as MP3, "
        f"WAV, FLAC, OGG, M4A, AAC or WebM, each {rules.min_seconds:g} to {rules.max_seconds:g} "
        f"seconds and at most {MAX_FILE_BYTES >> 20} MB, at least {rules.min_total_seconds:g} "
        "seconds in total." + note,
    }


@router.post(
    "/voices",
    status_code=201,
    summary="Create a custom voice from recordings",
    openapi_extra=form_schema(
        "files", VoiceFields, _files_schema(_CONFIG.samples, " A version needs only one.")
    ),
)
async def create_voice(
    request: Request,
    principal: PrincipalDep,
    voices: VoicesDep,
    operation: OperationDep,
    version_of: Annotated[UUID | None, Query(description="Voice to improve.")] = None,
) -> CustomVoice:
    """Checks the recordings before it responds. Building the voice then takes minutes.

    The price is held until the voice is ready, and released if it cannot be built. Without credit,
    or at the plan's voice limit, large uploads are refused before they are read. The first 20
    uploads in an hour that fail the checks are free; after that, each one is charged.

    `version_of` creates a new version of that voice, with its own id, from these recordings and the
    existing ones. Once ready, the version replaces the voice if it is more similar to held-out
    recordings; otherwise the version fails. Until then, the voice stays in use.
    """
    rules = voices.custom.rules
    limits = UploadLimits(max_files=rules.max_files)
    earlier = await voices.custom.ready(principal, str(version_of)) if version_of else None
    check_room = partial(voices.custom.check_room, principal, operation, earlier)
    async with receive_form(request, limits, check_room) as form:
        fields = form.read(VoiceFields)
        files = files_of(form, 1 if earlier else rules.min_files, rules.max_files)
        new = replace(new_voice(request, fields), earlier=earlier)
        work = voices.custom.create(principal, new, files, operation)
        voice = await while_connected(request.receive, work)
    return custom_voice(voice)


class ConsentRequest(RequestModel):
    """Options of a consent sentence. The body may be an empty object."""

    purpose: ConsentPurpose = Field(
        default="voice", description="`voice` for `POST /voices`, `speaker` for `POST /speakers`."
    )
    language: str | None = Field(
        default=None, min_length=2, max_length=35, description="Default: English."
    )


class ConsentAnswer(BaseModel):
    """A sentence of random words, and its token."""

    sentence: str = Field(description="Sentence that the speaker reads at the start of a file.")
    language: str
    consent_token: str = Field(description="Value for the form field `consent_token`.")
    expires_at: Moment


@router.post("/consent-sentences", summary="Create a consent sentence")
async def issue_consent_sentence(
    body: ConsentRequest, principal: PrincipalDep, voices: VoicesDep
) -> ConsentAnswer:
    """The speaker consents by reading the sentence aloud. A sentence expires after an hour.

    Small recognition errors are tolerated. The voice must match that of the other files.
    """
    language = body.language or "en"
    sentence, token = voices.custom.consent.issue(principal.workspace_id, language, body.purpose)
    return ConsentAnswer(
        sentence=sentence.text,
        language=sentence.language,
        consent_token=token,
        expires_at=iso_moment(datetime.fromtimestamp(sentence.expires, UTC)),
    )


class VoiceQuery(PageQuery):
    status: VoiceStatus | None = None
    language: str | None = Field(
        default=None, max_length=35, pattern="^[A-Za-z]{2,3}([-_][A-Za-z0-9_-]*)?$"
    )
    version_of: UUID | None = Field(default=None, description="Voice whose versions are listed.")


@router.get("/voices", summary="List custom voices")
async def list_voices(
    principal: PrincipalDep, voices: VoicesDep, query: Annotated[VoiceQuery, Query()]
) -> Page[CustomVoice]:
    """Voices come newest first, including those shared with the workspace."""
    listed, total = await voices.custom.page(
        principal,
        query.page,
        query.limit,
        status=query.status,
        language=query.language,
        version_of=query.version_of,
    )
    waits = await voices.custom.waits([voice for voice, _ in listed])
    page_of_voices = [custom_voice(voice, owner, waits.get(voice.id)) for voice, owner in listed]
    return query.answer(page_of_voices, total)


class VoiceLanguages(BaseModel):
    languages: list[LanguageNames]


@router.get("/voices/languages", summary="List the languages of custom voices")
async def list_voice_languages(voices: VoicesDep) -> VoiceLanguages:
    """Returns the languages that `POST /voices` accepts, by name."""
    names = map(name_language, await voices.custom.languages())
    return VoiceLanguages(languages=sorted(names, key=attrgetter("name")))


@router.get("/voices/{voice_id}", summary="Get a custom voice")
async def read_voice(voice_id: str, principal: PrincipalDep, voices: VoicesDep) -> CustomVoice:
    voice = await voices.custom.get(principal, voice_id)
    waits = await voices.custom.waits([voice])
    return custom_voice(voice, waiting=waits.get(voice.id))


@router.delete("/voices/{voice_id}", summary="Delete a custom voice")
async def delete_voice(voice_id: str, principal: PrincipalDep, voices: VoicesDep) -> Done:
    """Also deletes recordings, versions and shares. If the voice is still being built, the finished
    share of the build is charged."""
    await voices.custom.delete(principal, voice_id)
    return Done(message="the voice is deleted")


def new_voice(request: Request, fields: ConsentFields) -> NewVoice:
    """Returns the request for a voice, with the client's address."""
    address = None if request.client is None else request.client.host
    return NewVoice(**{name: value for name, value in fields if value}, address=address)


def files_of(form: MultipartForm, least: int, most: int) -> list[SampleFile]:
    """Returns the recordings of a form. Raises ApiError(invalid_file_count)."""
    files = [file for file in form.files if file.field in FIELDS]
    if not least <= len(files) <= most:
        message = f"files: {least} to {most} files are required, but {len(files)} were sent"
        raise ApiError("invalid_file_count", message, param="files")
    return [sample_file(file, number) for number, file in enumerate(files, start=1)]


def sample_file(file: Upload, number: int = 1) -> SampleFile:
    """Returns a recording with the name that error messages quote."""
    name = "".join(letter for letter in file.filename[:SHOWN_NAME] if letter.isprintable())
    return SampleFile(name.strip() or f"file {number}", file.path)


class ListedSpeaker(Shown):
    """An enrolled speaker, whom transcripts identify by name."""

    id: Id
    name: str
    created_at: datetime


@router.post(
    "/speakers",
    status_code=201,
    summary="Enrol a speaker",
    openapi_extra=form_schema("files", ConsentFields, _files_schema(_CONFIG.speakers)),
)
async def enrol_speaker(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> ListedSpeaker:
    """Only an encrypted voice embedding is stored, not the recordings.

    `consent` or `consent_token` is required.
    """
    async with receive_form(request, UploadLimits(max_files=_CONFIG.speakers.max_files)) as form:
        new = new_voice(request, form.read(ConsentFields))
        files = files_of(form, _CONFIG.speakers.min_files, _CONFIG.speakers.max_files)
        work = speech.speakers.enrol(principal, new, files, operation)
        return ListedSpeaker.model_validate(await while_connected(request.receive, work))


@router.get("/speakers", summary="List enrolled speakers, by name")
async def list_speakers(
    principal: PrincipalDep, speech: SpeechDep, query: Paged
) -> Page[ListedSpeaker]:
    rows, total = await speech.speakers.page(principal.workspace_id, query.page, query.limit)
    return query.answer([ListedSpeaker.model_validate(row) for row in rows], total)


@router.delete("/speakers/{speaker_id}", summary="Delete an enrolled speaker")
async def delete_speaker(speaker_id: str, principal: PrincipalDep, speech: SpeechDep) -> Done:
    """Open sessions may identify the speaker until they end."""
    await speech.speakers.delete(principal, speaker_id)
    return Done(message="the speaker is deleted")
