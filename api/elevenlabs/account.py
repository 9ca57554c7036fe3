"""Models, the user, the subscription and single-use tokens in ElevenLabs' API."""

from datetime import timedelta
from typing import Any, Literal

from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from api.dialects.requests import short_token
from api.elevenlabs.options import ALWAYS, KEY_HEADER, SCHEMES
from api.http.routing import GuardedRoute, InfrastructureDep, PlatformDep, PrincipalDep, make_router
from api.native.speech import TEXT_CHARACTERS
from db.database import utc_now
from models.base import ModelInfo
from pipelines.accounts.authentication import Scope as KeyScope
from pipelines.text.language_names import name_language

Json = dict[str, Any]
USAGE_DAYS = 30  # days of usage that `character_count` covers


class KeyedRoute(GuardedRoute):
    """Route that matches only ElevenLabs' key header, since other dialects use the same path."""

    schemes = SCHEMES

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if KEY_HEADER not in Headers(scope=scope):
            return Match.NONE, {}
        return super().matches(scope)


TAG = "ElevenLabs' dialect"
user = make_router(TAG, scope="billing", schemes=SCHEMES)
keyed = make_router(TAG, route_class=KeyedRoute)
tokens = make_router(TAG, scope="any", shows_secret=True, schemes=SCHEMES)
routers = (keyed, user, tokens)

OWNER_CHARACTERS = 10**9  # shown for a workspace without prices, since clients require a number
TOKEN_S = 900
TOKEN_SCOPES: dict[str, KeyScope] = {"realtime_scribe": "stt", "tts_websocket": "tts"}


@keyed.get("/v1/models", include_in_schema=False)
async def list_models(infrastructure: InfrastructureDep) -> list[Json]:
    """Lists the models that speak."""
    models = await infrastructure.models.models()
    return [_model(model.info) for model in models if model.info.kind == "tts"]


@user.get("/v1/user", summary="Get the workspace as a user, for ElevenLabs' clients")
async def get_user(principal: PrincipalDep, platform: PlatformDep) -> Json:
    return {
        "user_id": str(principal.user_id),
        "workspace_id": str(principal.workspace_id),
        "first_name": principal.workspace,
        "subscription": await get_subscription(principal, platform),
        **ALWAYS["user"],
    }


@user.get("/v1/user/subscription", summary="Get the subscription, for ElevenLabs' clients")
async def get_subscription(principal: PrincipalDep, platform: PlatformDep) -> Json:
    """Returns the characters used in the last 30 days, and the limit that the credit allows."""
    workspace_id = principal.workspace_id
    today = utc_now().date()
    billing = platform.billing
    current = await platform.subscriptions.current_plan(workspace_id, is_owner=principal.is_owner)
    first = today - timedelta(USAGE_DAYS - 1)
    days = await billing.usage(workspace_id, first, today, by_key=False)
    used = sum(day.units for day in days if day.service == "tts")
    credit = max(await billing.credit(workspace_id), 0)
    left = credit // max(billing.cost("tts", 1), 1)
    return {
        "tier": current.plan.id,
        "character_count": used,
        "character_limit": used + (OWNER_CHARACTERS if principal.is_owner else left),
        "next_character_count_reset_unix": round(current.next_billing_date.timestamp()),
        **ALWAYS["subscription"],
    }


@tokens.post(
    "/v1/single-use-token/{token_type}",
    summary="Create a single-use token, for ElevenLabs' clients",
)
async def create_single_use_token(
    token_type: Literal["realtime_scribe", "tts_websocket"],
    principal: PrincipalDep,
    platform: PlatformDep,
) -> Json:
    """Creates a browser token that works once within 15 minutes: `realtime_scribe` needs the scope
    `stt`, `tts_websocket` the scope `tts`."""
    wanted = (TOKEN_SCOPES[token_type],)
    return {"token": await short_token(principal, platform, wanted, TOKEN_S, single_use=True)}


def _model(info: ModelInfo) -> Json:
    languages = [name_language(code) for code in info.languages]
    return {
        "model_id": info.id,
        "name": info.id,
        "description": info.engine,
        "maximum_text_length_per_request": TEXT_CHARACTERS,
        "languages": [{"language_id": lang.code, "name": lang.name} for lang in languages],
        **ALWAYS["model"],
    }
