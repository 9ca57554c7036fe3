"""Enrolled speakers: people whose words are told by name in transcripts."""

from datetime import datetime
from functools import partial
from typing import Annotated

from fastapi import Query, Request

from api.http.bodies import Done, Id, Page, PageQuery, Shown
from api.http.routing import OperationDep, PrincipalDep, SpeechDep, make_router
from api.http.streaming import while_connected
from api.http.uploads import UploadLimits, form_schema, receive_form, validated
from api.native.voices import ConsentFields, files_of, files_schema
from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from pipelines.voices.speakers import NewSpeaker

router = make_router("speech to text", scope="voices")

_RULES = load_yaml(CustomVoicesConfig, "custom_voices").speakers


class Speaker(Shown):
    """An enrolled speaker."""

    id: Id
    name: str
    created_at: datetime


@router.post(
    "/speakers",
    status_code=201,
    summary="Enrol a speaker",
    openapi_extra=form_schema("files", ConsentFields, files_schema(_RULES)),
)
async def enrol_speaker(
    request: Request, principal: PrincipalDep, speech: SpeechDep, operation: OperationDep
) -> Speaker:
    """Of the recordings only an embedding of the voice is kept, encrypted.

    `consent` or `consent_token` is required. The price is that of a transcription.
    """
    check = partial(speech.transcription.check_credit, principal.workspace_id, operation)
    async with receive_form(request, UploadLimits(max_files=_RULES.max_files), check) as form:
        fields = validated(ConsentFields, form.fields)
        new = NewSpeaker(
            fields.name,
            fields.consent or None,
            fields.consent_token or None,
            None if request.client is None else request.client.host,
        )
        work = speech.speakers.enrol(principal, new, files_of(form, _RULES), operation)
        return Speaker.model_validate(await while_connected(request.receive, work))


@router.get("/speakers", summary="The workspace's enrolled speakers, by name")
async def list_speakers(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[PageQuery, Query()]
) -> Page[Speaker]:
    found, total = await speech.speakers.page(principal.workspace_id, query.page, query.limit)
    return query.answer([Speaker.model_validate(one) for one in found], total)


@router.delete("/speakers/{speaker_id}", summary="Delete an enrolled speaker")
async def delete_speaker(speaker_id: str, principal: PrincipalDep, speech: SpeechDep) -> Done:
    """Sessions that are open may recognise them until they end."""
    await speech.speakers.delete(principal, speaker_id)
    return Done(message="the speaker is deleted")
