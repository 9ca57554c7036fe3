"""Voices in ElevenLabs' API: lists and searches, instant clones, and voice settings."""

from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import BaseModel, Field, Json

from api.callers import Caller, CallerDep
from api.dialects.clones import LEAST, receive_clips
from api.dialects.requests import DialectQuery
from api.elevenlabs.options import ALWAYS, SCHEMES, VoiceSettings, find_voice, settings_key
from api.elevenlabs.speech import VoicePath
from api.http.errors import InvalidField
from api.http.routing import OperationDep, PlatformDep, PrincipalDep, VoicesDep, make_router
from api.http.uploads import BINARY, form_schema, receive_form, validated
from api.native.voices.custom import VoiceFields, VoiceName, new_voice
from pipelines.errors import VoiceNotReady
from pipelines.text.language_names import is_language
from pipelines.tts.voices import AvailableVoice, parse_id
from pipelines.voices.voice_object import CustomVoice, custom_voice
from pipelines.voices.voice_settings import SettingsByVoice

TAG = "ElevenLabs' dialect"
router = make_router(TAG, scope="tts", schemes=SCHEMES)
clones = make_router(TAG, scope="voices", schemes=SCHEMES)
routers = (router, clones)

Answer = dict[str, Any]
DONE = {"status": "ok"}
CLONE = "custom_voice"  # name of a clone's model in `fine_tuning`
STATES = {"processing": "fine_tuning", "ready": "fine_tuned", "failed": "failed"}
CATEGORIES = {
    "default": ("premade",),
    "non-default": ("cloned",),
    "personal": ("cloned",),
    "workspace": ("cloned",),
    "saved": ("cloned",),
    "non-community": ("cloned",),
    "community": (),
}
"""Categories of voices, by ElevenLabs' types of voices."""


class VoicesQuery(DialectQuery):
    search: str = Field(default="", max_length=200)
    category: str | None = Field(default=None, max_length=30)
    voice_type: str | None = Field(default=None, max_length=30)
    gender: str | None = Field(default=None, max_length=30)
    accent: str | None = Field(default=None, max_length=30)
    language: list[str] = Field(default=[], max_length=100)
    use_cases: list[str] = Field(default=[], max_length=100)
    voice_ids: list[str] = Field(default=[], max_length=100)
    sort: str | None = Field(
        default=None, max_length=30, description="`name`; any other value sorts by creation time."
    )
    sort_direction: str | None = Field(default=None, pattern="^(asc|desc)$")
    page_size: int = Field(default=10, ge=1, le=100)
    next_page_token: Annotated[str, Field(pattern="^[0-9]{0,9}$")] = ""

    def matches(self, voice: Answer) -> bool:
        labels = voice["labels"]
        wanted = {
            "gender": [self.gender] if self.gender else [],
            "accent": [self.accent] if self.accent else [],
            "language": [code.partition("-")[0] for code in self.language],
            "use_case": self.use_cases,
        }
        return (
            self.category in (None, voice["category"])
            and voice["category"] in CATEGORIES.get(self.voice_type or "", (voice["category"],))
            and all(
                not names or labels[key] in map(str.lower, names) for key, names in wanted.items()
            )
            and (not self.voice_ids or voice["voice_id"] in self.voice_ids)
            and self.search.lower()
            in " ".join([voice["name"], voice["description"], *labels.values()]).lower()
        )

    def in_order(self, voices: list[Answer]) -> list[Answer]:
        """Sorts voices, which come newest first."""
        if self.sort == "name":
            is_descending = self.sort_direction == "desc"
            return sorted(voices, key=lambda voice: voice["name"].lower(), reverse=is_descending)
        return voices[::-1] if self.sort and self.sort_direction == "asc" else voices


@router.get("/v1/voices", summary="List voices, for ElevenLabs' clients")
async def list_voices(caller: CallerDep) -> Answer:
    return {"voices": await _available(caller)}


@router.get("/v2/voices", summary="Search voices, for ElevenLabs' clients")
async def search_voices(caller: CallerDep, query: Annotated[VoicesQuery, Query()]) -> Answer:
    available = await _available(caller)
    matches = query.in_order([voice for voice in available if query.matches(voice)])
    start = int(query.next_page_token or 0)
    end = start + query.page_size
    has_more = end < len(matches)
    return {
        "voices": matches[start:end],
        "total_count": len(matches),
        "has_more": has_more,
        "next_page_token": str(end) if has_more else None,
    }


async def _available(caller: Caller) -> list[Answer]:
    listed = await caller.directory.voices(caller.workspace_id)
    stored = await caller.speech.voice_settings.of(caller.workspace_id)
    return [_voice(voice) | _settings(stored, voice.id) for voice in listed]


@router.get("/v1/voices/{voice_id}", summary="Get a voice, for ElevenLabs' clients")
async def get_voice(voice_id: VoicePath, caller: CallerDep, voices: VoicesDep) -> Answer:
    """`fine_tuning` shows the progress of a clone, which can be used once its state is
    `fine_tuned`."""
    try:
        answer = _voice(await find_voice(voice_id, caller))
    except VoiceNotReady:
        if parse_id(voice_id) is None:
            raise
        answer = _unready(custom_voice(await voices.custom.get(caller.principal, voice_id)))
    stored = await caller.speech.voice_settings.of(caller.workspace_id)
    return answer | _settings(stored, settings_key(voice_id, answer["voice_id"]))


@router.get("/v1/voices/settings/default", summary="Get the default voice settings")
async def get_default_settings() -> Answer:
    return dict(ALWAYS["settings"])


@router.get("/v1/voices/{voice_id}/settings", summary="Get the settings of a voice")
async def get_settings(voice_id: VoicePath, caller: CallerDep, voices: VoicesDep) -> Answer:
    """Returns the stored settings, and default values for the others."""
    return dict((await get_voice(voice_id, caller, voices))["settings"])


@clones.post("/v1/voices/{voice_id}/settings/edit", summary="Change the settings of a voice")
async def edit_settings(
    voice_id: VoicePath,
    body: VoiceSettings,
    caller: CallerDep,
    voices: VoicesDep,
    platform: PlatformDep,
) -> Answer:
    """Stores settings for the speech of this workspace in this voice, through ElevenLabs' API.
    Settings that are sent with a text take precedence. Absent settings keep their values."""
    await platform.request_limits.count_change(caller.principal)
    voice = await get_voice(voice_id, caller, voices)
    key = settings_key(voice_id, voice["voice_id"])
    changes = body.model_dump(exclude_unset=True)
    await caller.speech.voice_settings.change(caller.workspace_id, key, changes)
    return DONE


class CloneFields(VoiceFields):
    """Form fields of a clone, besides its recordings."""

    labels: Json[dict[str, str] | None] = Field(
        default=None, description="JSON object, of which `language` and `gender` are used."
    )

    def voice(self) -> VoiceFields:
        """Returns the fields of the service's own API, with values from `labels`."""
        named = {name: label.strip().lower() for name, label in (self.labels or {}).items()}
        language = named.get("language", "")
        gender = named.get("gender")
        fields = self.model_dump(exclude={"labels"})
        if is_language(language):
            fields["language"] = fields["language"] or language
        if gender in ("male", "female"):
            fields["gender"] = gender
        return validated(VoiceFields, fields)


RECORDINGS = {"type": "array", "items": BINARY, "minItems": 1, "description": LEAST}


@clones.post(
    "/v1/voices/add",
    summary="Create a custom voice from recordings, for ElevenLabs' clients",
    openapi_extra=form_schema("files", CloneFields, RECORDINGS),
)
async def clone_voice(
    request: Request, principal: PrincipalDep, voices: VoicesDep, operation: OperationDep
) -> Answer:
    """Checks the recordings before it responds. Building the voice then takes minutes, during which
    `GET /v1/voices/{voice_id}` shows its progress and texts in this voice are refused.

    Recordings are cut into files of the length that `POST /voices` takes. The price is that of
    `POST /voices`.
    """
    async with receive_clips(request, principal, voices.custom, operation) as clips:
        fields = clips.form.read(CloneFields).voice()
        voice = await clips.create(new_voice(request, fields))
    return {"voice_id": voice.id, "requires_verification": False}


class EditedFields(BaseModel):
    """Form fields of a changed voice."""

    name: VoiceName = Field(min_length=1)
    description: Annotated[str | None, Field(max_length=1000)] = None


@clones.post(
    "/v1/voices/{voice_id}/edit",
    summary="Change the name and description of a custom voice, for ElevenLabs' clients",
    openapi_extra=form_schema("files", EditedFields, RECORDINGS, is_required=False),
)
async def edit_voice(
    voice_id: VoicePath,
    request: Request,
    principal: PrincipalDep,
    voices: VoicesDep,
    platform: PlatformDep,
) -> Answer:
    """Recordings are refused; `POST /voices?version_of=` improves a voice with more recordings."""
    await platform.request_limits.count_change(principal)
    async with receive_form(request) as form:
        if form.files:
            message = "cannot be added here; POST /voices?version_of= improves a voice"
            raise InvalidField("files", message)
        fields = form.read(EditedFields)
    await voices.library.rename(principal, voice_id, fields.name, fields.description)
    return DONE


@clones.delete("/v1/voices/{voice_id}", summary="Delete a custom voice, for ElevenLabs' clients")
async def delete_voice(voice_id: str, principal: PrincipalDep, voices: VoicesDep) -> Answer:
    """Also deletes recordings, versions and shares. If the voice is still being built, the finished
    part of the build is charged."""
    await voices.custom.delete(principal, voice_id)
    return DONE


def _settings(stored: SettingsByVoice, key: str) -> Answer:
    return {"settings": {**ALWAYS["settings"], **stored.get(key, {})}}


def _voice(voice: AvailableVoice) -> Answer:
    info = voice.info
    model_id = voice.model.id
    labels = {
        "gender": info.gender,
        "accent": info.accent.lower(),
        "language": voice.language,
        "use_case": info.categories[0].lower() if info.categories else "",
    }
    answer = {
        "voice_id": voice.id,
        "name": info.name,
        "category": "premade" if voice.custom is None else "cloned",
        "description": info.description or "",
        "labels": labels,
        "high_quality_base_model_ids": [model_id],
        "verified_languages": [{"language": voice.language, "model_id": model_id}],
        **ALWAYS["voice"],
    }
    if voice.custom is not None:
        answer["fine_tuning"] = _progress("ready", 1.0)
    return answer


def _unready(voice: CustomVoice) -> Answer:
    """Returns a clone that is being built, or whose build failed."""
    return {
        "voice_id": voice.id,
        "name": voice.name,
        "category": "cloned",
        "description": voice.description or "",
        "labels": {"gender": voice.gender, "language": voice.language},
        "fine_tuning": _progress(voice.status, voice.progress, voice.reason),
        "high_quality_base_model_ids": [],
        "verified_languages": [],
        **ALWAYS["voice"],
    }


def _progress(status: str, progress: float, reason: str | None = None) -> Answer:
    return {
        "is_allowed_to_fine_tune": False,
        "state": {CLONE: STATES[status]},
        "progress": {CLONE: progress},
        "message": {CLONE: reason or ""},
    }
