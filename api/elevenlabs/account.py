"""What ElevenLabs' clients read of a workspace: voices, models, the user and its subscription."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from api.dialects.queries import DialectQuery
from api.elevenlabs.options import KEY_HEADER, SCHEMES, VoiceSettings, find_voice
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
from api.services import PlatformServices
from db.database import utc_now
from models.base import ModelInfo
from pipelines.accounts.authentication import Principal
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


class VoicesQuery(DialectQuery):
    """Which voices, and which page of them."""

    search: str = Field(default="", max_length=200)
    category: str | None = Field(default=None, max_length=30)
    page_size: int = Field(default=10, ge=1, le=100)
    next_page_token: Annotated[str, Field(pattern="^[0-9]{0,9}$")] = ""


@router.get("/v1/voices", summary="The voices, for ElevenLabs' clients")
async def list_voices(principal: PrincipalDep, speech: SpeechDep) -> Json:
    voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    return {"voices": _shown(voices, principal)}


@router.get("/v2/voices", summary="The voices in pages, for ElevenLabs' clients")
async def search_voices(
    principal: PrincipalDep, speech: SpeechDep, query: Annotated[VoicesQuery, Query()]
) -> Json:
    voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    found = [
        one
        for one in _shown(voices, principal)
        if query.category in (None, one["category"])
        and query.search.lower() in f"{one['name']} {one['description']} {one['labels']}".lower()
    ]
    start = int(query.next_page_token or 0)
    end = start + query.page_size
    more = end < len(found)
    return {
        "voices": found[start:end],
        "has_more": more,
        "total_count": len(found),
        "next_page_token": str(end) if more else None,
    }


@router.get("/v1/voices/{voice_id}", summary="A voice, for ElevenLabs' clients")
async def get_voice(voice_id: VoicePath, principal: PrincipalDep, speech: SpeechDep) -> Json:
    directory = speech.synthesis.pipeline.directory
    found = await find_voice(voice_id, directory, principal.workspace_id)
    return _shown([found], principal)[0]


@keyed.get("/v1/models", include_in_schema=False)
async def list_models(infrastructure: InfrastructureDep) -> list[Json]:
    """Those that speak."""
    listed = await infrastructure.models.models()
    return [_model(one.info) for one in listed if one.info.kind == "tts"]


@router.get("/v1/user", summary="The workspace as a user, for ElevenLabs' clients")
async def get_user(principal: PrincipalDep, platform: PlatformDep) -> Json:
    return {
        "user_id": str(principal.user_id),
        "workspace_id": str(principal.workspace_id),
        "first_name": principal.workspace,
        "subscription": await _subscription(principal, platform),
        "seat_type": "workspace_member",
        "created_at": 0,
        **dict.fromkeys(("is_new_user", "can_use_delayed_payment_methods"), False),
        **dict.fromkeys(("is_onboarding_completed", "is_onboarding_checklist_completed"), True),
    }


@router.get("/v1/user/subscription", summary="Its subscription, for ElevenLabs' clients")
async def get_subscription(principal: PrincipalDep, platform: PlatformDep) -> Json:
    """The credit as characters: those of the last 30 days, and the limit that it allows."""
    return await _subscription(principal, platform)


async def _subscription(principal: Principal, platform: PlatformServices) -> Json:
    workspace_id, today = principal.workspace_id, utc_now().date()
    current = await platform.subscriptions.current_plan(workspace_id)
    days = await platform.billing.usage(workspace_id, today - timedelta(USAGE_DAYS - 1), today)
    used = sum(day.units for day in days if day.service == "tts")
    credit = max(await platform.billing.credit(workspace_id), 0)
    left = credit // max(platform.billing.cost("tts", 1), 1)
    nothing = ("max_credit_limit_extension", "voice_slots_used", "voice_add_edit_counter")
    nothing += ("professional_voice_slots_used", "professional_voice_slots_used_in_workspace")
    never = ("can_extend_character_limit", "allowed_to_extend_character_limit")
    never += ("can_extend_voice_limit", "can_use_instant_voice_cloning")
    return {
        "tier": current.plan.id,
        "character_count": used,
        "character_limit": used + left,
        "next_character_count_reset_unix": round(current.next_billing_date.timestamp()),
        "voice_limit": 0,
        "professional_voice_limit": 0,
        "can_use_professional_voice_cloning": False,
        "currency": "usd",
        "current_overage": {"amount": "0", "currency": "usd"},
        "status": "active",
        **dict.fromkeys(nothing, 0),
        **dict.fromkeys(never, False),
    }


def _shown(voices: Sequence[AvailableVoice], principal: Principal) -> list[Json]:
    settings = VoiceSettings().model_dump()
    return [
        {
            "voice_id": one.voice.voice_id,
            "name": one.voice.name,
            "category": "premade" if one.custom is None else "cloned",
            "description": one.voice.description or "",
            "labels": {
                "gender": one.voice.gender,
                "accent": one.voice.accent.lower(),
                "language": one.voice.language,
            },
            "settings": settings,
            "high_quality_base_model_ids": [one.model.id],
            "verified_languages": [{"language": one.voice.language, "model_id": one.model.id}],
            "is_owner": one.is_of(principal.workspace_id),
            "available_for_tiers": [],
            "preview_url": None,
            "samples": None,
        }
        for one in voices
    ]


def _model(info: ModelInfo) -> Json:
    languages = [name_language(code) for code in info.languages]
    cannot = ("can_be_finetuned", "can_do_voice_conversion", "can_use_style", "serves_pro_voices")
    cannot += ("can_use_speaker_boost", "requires_alpha_access")
    return {
        "model_id": info.id,
        "name": info.id,
        "description": info.engine,
        "can_do_text_to_speech": True,
        "token_cost_factor": 1.0,
        "maximum_text_length_per_request": TEXT_CHARACTERS,
        "languages": [{"language_id": one.code, "name": one.name} for one in languages],
        **dict.fromkeys(cannot, False),
    }
