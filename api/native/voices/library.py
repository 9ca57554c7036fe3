"""Names, previews, shares and sealed files of custom voices."""

from datetime import datetime
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import Query, Request
from pydantic import BeforeValidator, Field, computed_field, model_validator
from starlette.responses import Response

from api.http.bodies import Done, Id, Page, PageQuery, RequestModel, Shown
from api.http.routing import OperationDep, PlatformDep, PrincipalDep, VoicesDep, make_router
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form, validated
from api.native.voices.custom import VoiceName
from db.database import utc_now
from pipelines.voices.library import MAX_BYTES
from pipelines.voices.voice_object import CustomVoice, custom_voice

router = make_router("voices", scope="voices")
shares = make_router("voices", scope="voices", shows_secret=True)
routers = (router, shares)

WorkspaceId = Annotated[str, Field(pattern="^[1-9][0-9]{0,15}$")]


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
    workspace_id: WorkspaceId | None = Field(
        default=None, description="Of the other workspace, where its owner has told it."
    )
    by_code: bool = Field(default=False, description="Else a code, for its owner to send.")
    speaker_allows_sharing: Literal[True] = Field(
        description="That the speaker's consent, which is on record, allows it. It is audited."
    )

    @model_validator(mode="after")
    def _has_one_receiver(self) -> "NewShare":
        if (self.workspace_id is not None) == self.by_code:
            raise ValueError("workspace_id: send it, or by_code: true; e-mails are not verified")
        return self


class ShareCode(RequestModel):
    code: Annotated[str, Field(min_length=1, max_length=200)]


class ShownShare(Shown):
    """A voice that is offered to another workspace, or used there."""

    id: Id
    voice_id: Id
    name: str
    owner: str = Field(description="The name of the workspace that has the voice.")
    is_own: bool = Field(description="Whether that is this workspace.")
    workspace_id: Id | None = Field(description="That uses the voice, or is offered it.")
    email: Annotated[str | None, BeforeValidator(lambda email: email or None)] = Field(
        description="To which an earlier release offered it; such an offer has expired."
    )
    created_at: datetime
    expires_at: datetime | None = Field(description="Of a code that was not used yet.")
    accepted_at: datetime | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Literal["open", "accepted", "expired"]:
        if self.accepted_at is not None:
            return "accepted"
        has_ended = self.expires_at is not None and self.expires_at <= utc_now()
        return "expired" if has_ended or self.email else "open"


class OfferedShare(ShownShare):
    """An offer; one by code has the code, which is shown this once."""

    code: str | None = None


@shares.post("/voices/{voice_id}/shares", status_code=201, summary="Offer a voice")
async def share_voice(
    voice_id: str, body: NewShare, principal: PrincipalDep, voices: VoicesDep, platform: PlatformDep
) -> OfferedShare:
    """Another workspace can speak with the voice once it has accepted, and no more than that. The
    offer is for the workspace with that id, or for the first that sends the code within 7 days."""
    await platform.request_limits.count_change(principal)
    workspace_id = None if body.workspace_id is None else int(body.workspace_id)
    share, code = await voices.library.offer(principal, voice_id, workspace_id)
    return OfferedShare(**dict(ShownShare.model_validate(share)), code=code)


@router.post("/voice-shares", summary="Accept a voice by its code")
async def redeem_code(
    body: ShareCode, principal: PrincipalDep, voices: VoicesDep, platform: PlatformDep
) -> ShownShare:
    """A code is for one workspace; it is 404 once it has been used or has expired."""
    await platform.request_limits.count_change(principal)
    return ShownShare.model_validate(await voices.library.redeem(principal, body.code))


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
