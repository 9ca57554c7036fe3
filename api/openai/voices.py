"""Consent recordings and custom voices for OpenAI's clients."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query, Request
from pydantic import BaseModel, BeforeValidator, Field

from api.dialects.clones import LEAST, errors_naming, receive_clips
from api.http.bodies import Id, RequestModel, Shown
from api.http.errors import ApiError, InvalidField
from api.http.routing import OperationDep, PlatformDep, PrincipalDep, VoicesDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import BINARY, form_schema, receive_form
from api.native.voices.custom import VoiceFields, VoiceName, new_voice, sample_file
from api.openai.pages import CursorPage, CursorQuery, page_of
from pipelines.tts.voices import parse_id
from pipelines.voices.consent_recordings import NO_CONSENT

router = make_router("voices", scope="voices")

CONSENTS = "/openai/v1/audio/voice_consents"
CONSENT = f"{CONSENTS}/{{consent_id}}"
VOICES = "/openai/v1/audio/voices"
RECORDING = {**BINARY, "description": "At most 30 seconds, beginning with the phrase."}

UnixTime = Annotated[int, BeforeValidator(lambda at: int(at.timestamp()))]
"""A datetime, written as seconds since the epoch."""


class ConsentRecordingFields(BaseModel):
    """Form fields of a consent recording."""

    name: VoiceName = Field(min_length=1)
    language: str = Field(
        min_length=2, max_length=35, description="Language of the phrase, such as `en-US`."
    )


class ShownConsent(Shown):
    """A consent recording, of which only an embedding of the speaker is kept."""

    id: Id
    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    name: str
    language: str
    created_at: UnixTime


class ConsentName(RequestModel):
    name: VoiceName = Field(min_length=1)


class DeletedConsent(BaseModel):
    id: str
    object: Literal["audio.voice_consent"] = "audio.voice_consent"
    deleted: bool = True


class AudioVoiceFields(VoiceFields):
    """Form fields of a voice, besides its recording."""

    consent: str = Field(max_length=200, description="Id of a consent recording.")
    type: Literal["audio_sample"] = "audio_sample"


class AudioVoice(BaseModel):
    """A custom voice."""

    id: str
    object: Literal["audio.voice"] = "audio.voice"
    name: str
    created_at: int
    type: Literal["audio_sample"] = "audio_sample"


class DeletedAudioVoice(BaseModel):
    id: str
    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    deleted: bool = True


@router.post(
    CONSENTS,
    summary="Create a consent recording, for OpenAI's clients",
    openapi_extra=form_schema("recording", ConsentRecordingFields, RECORDING),
)
async def create_consent(
    request: Request,
    principal: PrincipalDep,
    voices: VoicesDep,
    operation: OperationDep,
    platform: PlatformDep,
) -> ShownConsent:
    """The speaker reads the phrase that OpenAI's documentation has for the language. The recording
    is checked at once, and an embedding of the speaker is kept, but no audio."""
    await platform.request_limits.count_change(principal)
    async with receive_form(request) as form:
        fields = form.read(ConsentRecordingFields)
        recording = sample_file(form.file("recording"))
        with errors_naming("recording"):
            work = voices.consents.add(
                principal, fields.name, fields.language, recording, operation
            )
            return ShownConsent.model_validate(await while_connected(request.receive, work))


@router.get(CONSENTS, summary="List consent recordings, for OpenAI's clients")
async def list_consents(
    principal: PrincipalDep, voices: VoicesDep, query: Annotated[CursorQuery, Query()]
) -> CursorPage[ShownConsent]:
    after = None if query.after is None else _uuid_of(query.after, "after")
    rows = await voices.consents.page(principal.workspace_id, after, query.limit + 1)
    return page_of([ShownConsent.model_validate(row) for row in rows], query.limit)


@router.get(CONSENT, summary="Get a consent recording, for OpenAI's clients")
async def read_consent(consent_id: str, principal: PrincipalDep, voices: VoicesDep) -> ShownConsent:
    return ShownConsent.model_validate(
        await voices.consents.get(principal.workspace_id, _uuid_of(consent_id))
    )


@router.post(CONSENT, summary="Rename a consent recording, for OpenAI's clients")
async def rename_consent(
    consent_id: str,
    body: ConsentName,
    principal: PrincipalDep,
    voices: VoicesDep,
    platform: PlatformDep,
) -> ShownConsent:
    await platform.request_limits.count_change(principal)
    return ShownConsent.model_validate(
        await voices.consents.rename(principal, _uuid_of(consent_id), body.name)
    )


@router.delete(CONSENT, summary="Delete a consent recording, for OpenAI's clients")
async def delete_consent(
    consent_id: str, principal: PrincipalDep, voices: VoicesDep
) -> DeletedConsent:
    """Voices that were created with the consent stay."""
    await voices.consents.delete(principal, _uuid_of(consent_id))
    return DeletedConsent(id=consent_id)


@router.post(
    VOICES,
    summary="Create a custom voice, for OpenAI's clients",
    openapi_extra=form_schema("audio_sample", AudioVoiceFields, {**BINARY, "description": LEAST}),
)
async def create_voice(
    request: Request, principal: PrincipalDep, voices: VoicesDep, operation: OperationDep
) -> AudioVoice:
    """Checks the recording before it responds; its speaker must be that of the consent recording.
    Building the voice then takes minutes: `GET /voices/{voice_id}` shows its progress.

    The recording is cut into files of the length that `POST /voices` takes. The price is that of
    `POST /voices`.
    """
    async with receive_clips(request, principal, voices.custom, operation, "audio_sample") as clips:
        if clips.form.fields.get("type") == "prompt":
            raise InvalidField("type", "must be audio_sample: voices cannot be made from a text")
        fields = clips.form.read(AudioVoiceFields)
        consent_id = _uuid_of(fields.consent, "consent")
        consent = await voices.consents.get(principal.workspace_id, consent_id)
        new = new_voice(request, VoiceFields(**fields.model_dump(exclude={"consent", "type"})))
        reader = voices.consents.reader(consent)
        voice = await clips.create(replace(new, consent=consent.phrase, reader=reader))
    created_at = datetime.fromisoformat(voice.created_at)
    return AudioVoice(id=voice.id, name=voice.name, created_at=int(created_at.timestamp()))


@router.delete(f"{VOICES}/{{voice_id}}", summary="Delete a custom voice, for OpenAI's clients")
async def delete_voice(
    voice_id: str, principal: PrincipalDep, voices: VoicesDep
) -> DeletedAudioVoice:
    """Also deletes recordings, versions and shares. If the voice is still being built, the finished
    part of the build is charged."""
    await voices.custom.delete(principal, voice_id)
    return DeletedAudioVoice(id=voice_id)


def _uuid_of(consent_id: str, field: str | None = None) -> UUID:
    """Parses the id of a consent. Raises ApiError(not_found)."""
    if (identity := parse_id(consent_id)) is None:
        raise ApiError("not_found", NO_CONSENT, param=field)
    return identity
