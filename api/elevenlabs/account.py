"""What ElevenLabs' clients read of a workspace: voices, models, the user and its subscription."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from api.dialects.requests import DialectQuery
from api.elevenlabs.options import ALWAYS, KEY_HEADER, SCHEMES, find_voice
from api.elevenlabs.speech import VoicePath
from api.http.routing import (
    InfrastructureDep,
    PlatformDep,
    PrincipalDep,
    SpeechDep,
    guarded_route,
    make_router,
)
from api.native.speech import TEXT_CHARACTERS
from db.database import utc_now
from models.base import ModelInfo
from pipelines.text.language_names import name_language
from pipelines.tts.voices import AvailableVoice

Json = dict[str, Any]
USAGE_DAYS = 30


class KeyedRoute(guarded_route(None, SCHEMES)):  # type: ignore[misc]
    """A path that others serve too: it answers requests with ElevenLabs' header."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if KEY_HEADER not in Headers(scope=scope):
            return Match.NONE, {}
        matched: tuple[Match, Scope] = super().matches(scope)
        return matched


router = make_router("ElevenLabs' dialect", schemes=SCHEMES)
keyed = make_router("ElevenLabs' dialect", route_class=KeyedRoute)
routers = (keyed, router)


class VoicesQuery(DialectQuery):
    """Which voices, and which page of them."""

    search: str = Field(default="", max_length=200)
    category: str | None = Field(default=None, max_length=30)
    page_size: int = Field(default=10, ge=1, le=100)
    next_page_token: Annotated[str, Field(pattern="^[0-9]{0,9}$")] = ""


@router.get("/v1/voices", summary="The voices, for ElevenLabs' clients")
async def list_voices(principal: PrincipalDep, speech: SpeechDep) -> Json:
    voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    return {"voices": [*map(_voice, voices)]}


@router.get("/v2/voices", summary="The voices in pages, for ElevenLabs' clients")
async def search_voices(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[VoicesQuery, Query()]
) -> Json:
    voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    found = [
        one
        for one in map(_voice, voices)
        if query.category in (None, one["category"])
        and query.search.lower() in f"{one['name']} {one['description']} {one['labels']}".lower()
    ]
    start = int(query.next_page_token or 0)
    end = start + query.page_size
    more = end < len(found)
    page = {"voices": found[start:end], "total_count": len(found)}
    return {**page, "has_more": more, "next_page_token": str(end) if more else None}


@router.get("/v1/voices/{voice_id}", summary="A voice, for ElevenLabs' clients")
async def get_voice(voice_id: VoicePath, principal: PrincipalDep, speech: SpeechDep) -> Json:
    directory = speech.synthesis.pipeline.directory
    return _voice(await find_voice(voice_id, directory, principal.workspace_id))


@keyed.get("/v1/models", include_in_schema=False)
async def list_models(infrastructure: InfrastructureDep) -> list[Json]:
    """Those that speak."""
    listed = await infrastructure.models.models()
    return [_model(one.info) for one in listed if one.info.kind == "tts"]


@router.get("/v1/user", summary="The workspace as a user, for ElevenLabs' clients")
async def get_user(principal: PrincipalDep, platform: PlatformDep) -> Json:
    ids = {"user_id": str(principal.user_id), "workspace_id": str(principal.workspace_id)}
    subscription = await get_subscription(principal, platform)
    about = {"first_name": principal.workspace, "subscription": subscription}
    return {**ids, **about, **ALWAYS["user"]}


@router.get("/v1/user/subscription", summary="Its subscription, for ElevenLabs' clients")
async def get_subscription(principal: PrincipalDep, platform: PlatformDep) -> Json:
    """The credit as characters: those of the last 30 days, and the limit that it allows."""
    workspace_id, today, billing = principal.workspace_id, utc_now().date(), platform.billing
    current = await platform.subscriptions.current_plan(workspace_id)
    first = today - timedelta(USAGE_DAYS - 1)
    days = await billing.usage(workspace_id, first, today, by_key=False)
    used = sum(day.units for day in days if day.service == "tts")
    credit = max(await billing.credit(workspace_id), 0)
    return {
        "tier": current.plan.id,
        "character_count": used,
        "character_limit": used + credit // max(billing.cost("tts", 1), 1),
        "next_character_count_reset_unix": round(current.next_billing_date.timestamp()),
        **ALWAYS["subscription"],
    }


def _voice(one: AvailableVoice) -> Json:
    voice, model_id = one.voice, one.model.id
    spoken = {"gender": voice.gender, "accent": voice.accent.lower(), "language": voice.language}
    return {
        "voice_id": voice.voice_id,
        "name": voice.name,
        "category": "premade" if one.custom is None else "cloned",
        "description": voice.description or "",
        "labels": spoken,
        "high_quality_base_model_ids": [model_id],
        "verified_languages": [{"language": voice.language, "model_id": model_id}],
        **ALWAYS["voice"],
    }


def _model(info: ModelInfo) -> Json:
    languages = [name_language(code) for code in info.languages]
    return {
        "model_id": info.id,
        "name": info.id,
        "description": info.engine,
        "maximum_text_length_per_request": TEXT_CHARACTERS,
        "languages": [{"language_id": one.code, "name": one.name} for one in languages],
        **ALWAYS["model"],
    }
