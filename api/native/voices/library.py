"""Names, previews, shares and sealed files of custom voices."""

from datetime import datetime
from typing import Annotated, Literal

from anyio import to_thread
from fastapi import Request
from pydantic import BeforeValidator, Field, computed_field, model_validator
from starlette.responses import Response

from api.http.bodies import Done, Id, Page, Paged, RequestModel, Shown
from api.http.routing import OperationDep, PlatformDep, PrincipalDep, VoicesDep, make_router
from api.http.uploads import BINARY, UploadLimits, form_schema, receive_form
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
    voice_id: str,
    body: ChangedVoice,
    principal: PrincipalDep,
    voices: VoicesDep,
    platform: PlatformDep,
) -> CustomVoice:
    await platform.request_limits.count_change(principal)
    return custom_voice(await voices.library.rename(principal, voice_id, body.name))


@router.get(
    "/voices/{voice_id}/preview",
    summary="Get a preview of a voice being built",
    response_class=Response,
    responses={200: {"description": "Ogg Opus", "content": {"audio/ogg": {"schema": BINARY}}}},
)
async def read_preview(voice_id: str, principal: PrincipalDep, voices: VoicesDep) -> Response:
    """Returns a sentence in the best style so far, updated about every 10 s during the build."""
    audio = await voices.library.preview(principal, voice_id)
    return Response(audio, media_type="audio/ogg", headers={"Cache-Control": "no-store"})


class NewShare(RequestModel):
    workspace_id: WorkspaceId | None = Field(
        default=None, description="Id of the receiving workspace."
    )
    by_code: bool = Field(default=False, description="Creates a code for the other workspace.")
    speaker_allows_sharing: Literal[True] = Field(
        description="Confirms that the recorded consent allows sharing. The audit log records this."
    )

    @model_validator(mode="after")
    def _has_one_receiver(self) -> "NewShare":
        if (self.workspace_id is not None) == self.by_code:
            raise ValueError("workspace_id: send either workspace_id or by_code: true")
        return self


class ShareCode(RequestModel):
    code: Annotated[str, Field(min_length=1, max_length=200)]


class ShownShare(Shown):
    """The offer of a voice to another workspace."""

    id: Id
    voice_id: Id
    name: str
    owner: str = Field(description="Name of the workspace that owns the voice.")
    is_own: bool = Field(description="True if this workspace owns the voice.")
    workspace_id: Id | None = Field(description="Receiving workspace.")
    email: Annotated[str | None, BeforeValidator(lambda email: email or None)] = Field(
        description="Recipient named by an earlier release; such an offer lasts only if accepted."
    )
    created_at: datetime
    expires_at: datetime | None = Field(description="Expiry of an unused code.")
    accepted_at: datetime | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Literal["open", "accepted", "expired"]:
        if self.accepted_at is not None:
            return "accepted"
        has_ended = self.expires_at is not None and self.expires_at <= utc_now()
        return "expired" if has_ended or self.email else "open"


class OfferedShare(ShownShare):
    """A new offer. `code` is only shown once."""

    code: str | None = None


@shares.post("/voices/{voice_id}/shares", status_code=201, summary="Offer a voice")
async def share_voice(
    voice_id: str, body: NewShare, principal: PrincipalDep, voices: VoicesDep, platform: PlatformDep
) -> OfferedShare:
    """Lets another workspace use the voice for speech, once it has accepted. The offer is for the
    given workspace, or for the first one that redeems the code within 7 days."""
    await platform.request_limits.count_change(principal)
    workspace_id = None if body.workspace_id is None else int(body.workspace_id)
    share, code = await voices.library.offer(principal, voice_id, workspace_id)
    return OfferedShare(**dict(ShownShare.model_validate(share)), code=code)


@router.post("/voice-shares", summary="Redeem a voice code")
async def redeem_code(
    body: ShareCode, principal: PrincipalDep, voices: VoicesDep, platform: PlatformDep
) -> ShownShare:
    """A code works for one workspace. Returns 404 after it was used or has expired."""
    await platform.request_limits.count_change(principal)
    return ShownShare.model_validate(await voices.library.redeem(principal, body.code))


@router.get("/voice-shares", summary="List voice shares, given and received")
async def list_shares(principal: PrincipalDep, voices: VoicesDep, query: Paged) -> Page[ShownShare]:
    offers, total = await voices.library.shares(principal, query.page, query.limit)
    return query.answer([ShownShare.model_validate(share) for share in offers], total)


@router.post("/voice-shares/{share_id}/accept", summary="Accept an offered voice")
async def accept_share(share_id: str, principal: PrincipalDep, voices: VoicesDep) -> ShownShare:
    accepted = await voices.library.change_share(principal, share_id, accept=True)
    return ShownShare.model_validate(accepted)


@router.delete("/voice-shares/{share_id}", summary="Stop sharing a voice")
async def end_share(share_id: str, principal: PrincipalDep, voices: VoicesDep) -> Done:
    """Either workspace can do this. The receiver loses the voice within 5 s, even on sockets."""
    await voices.library.change_share(principal, share_id, accept=False)
    return Done(message="the voice is no longer shared")


class Sealing(RequestModel):
    passphrase: str | None = Field(
        default=None,
        min_length=12,
        max_length=1000,
        description="Passphrase of the file. Without it, only the exporting workspace can open it.",
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
    """The file contains the report and the consent, but not the recordings. It is encrypted and
    authenticated."""
    sealed = await voices.library.save(principal, voice_id, body.passphrase)
    headers = {"Content-Disposition": f'attachment; filename="{voice_id}.voice"'}
    return Response(sealed, media_type="application/octet-stream", headers=headers)


@router.post(
    "/voice-imports",
    status_code=201,
    summary="Import a voice from a sealed file",
    openapi_extra=form_schema("file", Sealing, BINARY | {"description": "Exported file."}),
)
async def import_voice(
    request: Request, principal: PrincipalDep, voices: VoicesDep, operation: OperationDep
) -> CustomVoice:
    """Creates a ready voice with the report and consent from the file, free of charge."""
    async with receive_form(request, UploadLimits(max_file_bytes=MAX_BYTES)) as form:
        passphrase = form.read(Sealing).passphrase
        data = await to_thread.run_sync(form.file("file").path.read_bytes)
    return custom_voice(await voices.library.load(principal, data, passphrase, operation))
