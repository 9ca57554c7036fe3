"""Voices in Cartesia's API: lists, clones, and changes of the workspace's own voices."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field

from api.callers import CallerDep
from api.cartesia.routes import PREFIX, SCHEMES, TAG, foreign_voice
from api.dialects.clones import LEAST, receive_clips
from api.dialects.outputs import voice_for
from api.dialects.requests import DialectQuery
from api.http.errors import ApiError
from api.http.routing import OperationDep, PlatformDep, PrincipalDep, VoicesDep, make_router
from api.http.uploads import BINARY, form_schema
from api.native.voices.custom import VoiceFields, VoiceName, new_voice
from api.sockets.tts.events import LenientModel
from models.base import VoiceInfo
from pipelines.accounts.authentication import Principal
from pipelines.tts.voices import AvailableVoice
from pipelines.voices.voice_object import CustomVoice, custom_voice

router = make_router(TAG, scope="tts", schemes=SCHEMES)
own = make_router(TAG, scope="voices", schemes=SCHEMES)
routers = (router, own)

Json = dict[str, Any]
VOICE = f"{PREFIX}/voices/{{voice_id}}"
GENDERS = {"male": "masculine", "female": "feminine", "neutral": "gender_neutral"}


class CartesiaVoicesQuery(DialectQuery):
    limit: int = Field(default=100, ge=1, le=100)
    starting_after: str | None = Field(
        default=None, description="Id of the last voice of the previous page."
    )
    ending_before: str | None = Field(
        default=None, description="Id of the first voice of the following page."
    )
    q: str = Field(default="", max_length=200)
    gender: Literal["masculine", "feminine", "gender_neutral"] | None = None
    is_owner: bool | None = None

    def matches(self, voice: Json) -> bool:
        text = f"{voice['id']} {voice['name']} {voice['description']}".lower()
        return (
            self.gender in (None, voice["gender"])
            and self.is_owner in (None, voice["is_owner"])
            and self.q.lower() in text
        )


@router.get(f"{PREFIX}/voices", summary="List voices, for Cartesia's clients")
async def list_voices(query: Annotated[CartesiaVoicesQuery, Query()], caller: CallerDep) -> Json:
    voices = await caller.directory.voices(caller.workspace_id)
    ids = [voice.id for voice in voices]
    for field in ("starting_after", "ending_before"):
        if getattr(query, field) not in (None, *ids):
            raise ApiError("voice_not_found", f"{field}: no voice has that id")
    first = ids.index(query.starting_after) + 1 if query.starting_after else 0
    end = ids.index(query.ending_before) if query.ending_before else None
    entries = [_available_voice(voice, caller.workspace_id) for voice in voices[first:end]]
    matches = [entry for entry in entries if query.matches(entry)]
    page = matches[: query.limit] if end is None else matches[-query.limit :]
    return {"data": page, "has_more": len(matches) > query.limit}


@router.get(VOICE, summary="Get a voice, for Cartesia's clients")
async def get_voice(voice_id: str, caller: CallerDep) -> Json:
    foreign = foreign_voice(voice_id)
    voice = await voice_for(voice_id, foreign, caller, "id")
    return _available_voice(voice, caller.workspace_id) | ({"id": voice_id} if foreign else {})


def _available_voice(voice: AvailableVoice, workspace_id: int) -> Json:
    created_at = datetime.fromtimestamp(voice.model.created, UTC).isoformat()
    is_owner = voice.is_of(workspace_id)
    return _voice(voice.id, voice.info, created_at, is_owner=is_owner, is_public=not voice.custom)


def _voice(
    voice_id: str,
    voice: VoiceInfo | CustomVoice,
    created_at: str,
    *,
    is_owner: bool = True,
    is_public: bool = False,
) -> Json:
    return {
        "id": voice_id,
        "name": voice.name,
        "description": voice.description or "",
        "tagline": "",
        "language": voice.language,
        "locales": [{"locale": voice.language, "is_native": True}],
        "gender": GENDERS[voice.gender],
        "is_owner": is_owner,
        "access": "public" if is_public else "private",
        "visibility": "all" if is_public else "owner",
        "created_at": created_at,
    }


@own.post(
    f"{PREFIX}/voices/clone",
    summary="Create a custom voice from a clip, for Cartesia's clients",
    openapi_extra=form_schema("clip", VoiceFields, BINARY | {"description": LEAST}),
)
async def clone_voice(
    request: Request, principal: PrincipalDep, voices: VoicesDep, operation: OperationDep
) -> Json:
    """Checks the clip before it responds. Building the voice then takes minutes, during which
    `GET /cartesia/voices/{voice_id}` is refused.

    The clip is cut into files of the length that `POST /voices` takes. The price is that of
    `POST /voices`.
    """
    async with receive_clips(request, principal, voices.custom, operation, "clip") as clips:
        voice = await clips.create(new_voice(request, clips.form.read(VoiceFields)))
    return _own_voice(voice, principal)


class CartesiaVoiceChange(LenientModel):
    """The name and description of a voice; absent fields keep their values."""

    name: VoiceName | None = Field(default=None, min_length=1)
    description: str | None = Field(default=None, max_length=1000)


@own.patch(VOICE, summary="Change a custom voice, for Cartesia's clients")
async def change_voice(
    voice_id: str,
    body: CartesiaVoiceChange,
    principal: PrincipalDep,
    voices: VoicesDep,
    platform: PlatformDep,
) -> Json:
    await platform.request_limits.count_change(principal)
    name = body.name or (await voices.custom.get(principal, voice_id)).name
    changed = await voices.library.rename(principal, voice_id, name, body.description)
    return _own_voice(custom_voice(changed), principal)


@own.delete(VOICE, summary="Delete a custom voice, for Cartesia's clients", status_code=204)
async def delete_voice(voice_id: str, principal: PrincipalDep, voices: VoicesDep) -> None:
    """Also deletes recordings, versions and shares. If the voice is still being built, the finished
    part of the build is charged."""
    await voices.custom.delete(principal, voice_id)


def _own_voice(voice: CustomVoice, principal: Principal) -> Json:
    """Returns a custom voice, which may not be ready."""
    return _voice(voice.id, voice, voice.created_at) | {"user_id": str(principal.workspace_id)}
