"""Names, previews, shares and sealed files of custom voices."""

from datetime import datetime
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.bodies import Done, Id, Page, PageQuery, RequestModel, Shown
from api.http.routing import OperationDep, PlatformDep, PrincipalDep, VoicesDep, make_router
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form, validated
from api.native.accounts import Email
from api.native.voices.custom import VoiceName
from pipelines.voices.library import MAX_BYTES
from pipelines.voices.voice_object import CustomVoice, custom_voice

router = make_router("voices", scope="voices")


class ChangedVoice(RequestModel):
    name: VoiceName = Field(min_length=1)


@router.patch("/voices/{voice_id}", summary="Rename a custom voice")
async def rename_voice(
    voice_id: str, body: ChangedVoice, principal: PrincipalDep, voices: VoicesDep
) -> CustomVoice:
    return custom_voice(await voices.library.rename(principal, voice_id, body.name))


@router.get(
    "/voices/{voice_id}/preview",
    summary="A sentence of a voice that is being made",
    response_class=Response,
    responses={200: {"description": "Ogg Opus", "content": {"audio/ogg": {"schema": BINARY}}}},
)
async def read_preview(voice_id: str, principal: PrincipalDep, voices: VoicesDep) -> Response:
    """In the best style so far; renewed about every ten seconds until the voice is finished."""
    sound = await voices.library.preview(principal, voice_id)
    return Response(sound, media_type="audio/ogg", headers={"Cache-Control": "no-store"})


class NewShare(RequestModel):
    email: Email = Field(description="Of the owner of the other workspace.")
    speaker_allows_sharing: Literal[True] = Field(
        description="That the speaker's consent, which is on record, allows it. It is audited."
    )


class ShownShare(Shown):
    """A voice that is offered to another workspace, or used there."""

    id: Id
    voice_id: Id
    name: str
    owner: str = Field(description="The name of the workspace that has the voice.")
    is_own: bool = Field(description="Whether that is this workspace.")
    email: str
    created_at: datetime
    accepted_at: datetime | None


@router.post("/voices/{voice_id}/shares", status_code=201, summary="Offer a voice")
async def share_voice(
    voice_id: str, body: NewShare, principal: PrincipalDep, voices: VoicesDep, platform: PlatformDep
) -> ShownShare:
    """To another workspace, which can speak with it once it has accepted, and no more than that."""
    await platform.request_limits.count_change(principal)
    return ShownShare.model_validate(await voices.library.offer(principal, voice_id, body.email))


@router.get("/voice-shares", summary="Voices that the workspace offers or is offered")
async def list_shares(
    principal: PrincipalDep, voices: VoicesDep, query: Annotated[PageQuery, Query()]
) -> Page[ShownShare]:
    found, total = await voices.library.shares(principal, query.page, query.limit)
    return query.answer([ShownShare.model_validate(one) for one in found], total)


@router.post("/voice-shares/{share_id}/accept", summary="Accept a voice that is offered")
async def accept_share(share_id: str, principal: PrincipalDep, voices: VoicesDep) -> ShownShare:
    accepted = await voices.library.change_share(principal, share_id, accept=True)
    return ShownShare.model_validate(accepted)


@router.delete("/voice-shares/{share_id}", summary="End the share of a voice")
async def end_share(share_id: str, principal: PrincipalDep, voices: VoicesDep) -> Done:
    """By either workspace. The voice is unusable in the other one within 5 s, also on sockets."""
    await voices.library.change_share(principal, share_id, accept=False)
    return Done(message="the voice is no longer shared")


class Sealing(RequestModel):
    passphrase: str | None = Field(
        default=None, min_length=12, max_length=1000, description="Null: for this workspace only."
    )


@router.post(
    "/voices/{voice_id}/export",
    summary="Export a voice as a sealed file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": BINARY}}}},
)
async def export_voice(
    voice_id: str, body: Sealing, principal: PrincipalDep, voices: VoicesDep
) -> Response:
    """With its report and the consent, without its recordings. It is encrypted, and a change of it
    is noticed."""
    sealed = await voices.library.save(principal, voice_id, body.passphrase)
    headers = {"Content-Disposition": f'attachment; filename="{voice_id}.voice"'}
    return Response(sealed, media_type="application/octet-stream", headers=headers)


@router.post(
    "/voice-imports",
    status_code=201,
    summary="Import a voice from a sealed file",
    openapi_extra=form_schema("file", Sealing, BINARY | {"description": "Of an export."}),
)
async def import_voice(
    request: Request, principal: PrincipalDep, voices: VoicesDep, operation: OperationDep
) -> CustomVoice:
    """A voice that is ready, free of charge, with the report and consent of the file."""
    async with receive_form(request, UploadLimits(max_file_bytes=MAX_BYTES)) as form:
        passphrase = validated(Sealing, form.fields).passphrase
        data = await to_thread.run_sync(form.file("file").path.read_bytes)
    return custom_voice(await voices.library.load(principal, data, passphrase, operation))
