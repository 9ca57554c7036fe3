"""Models, the key's scopes, the project and short-lived tokens in Deepgram's API."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from pydantic import BaseModel, Field

from api.deepgram.options import BEARER_OR_TOKEN, described, uuid_of
from api.dialects.requests import short_token
from api.http.bodies import declared_bytes, parse_json, read_json
from api.http.errors import ApiError
from api.http.routing import InfrastructureDep, PlatformDep, PrincipalDep, SpeechDep, make_router
from api.http.uploads import validated
from api.native.models import shown_model
from models.base import ModelInfo
from pipelines.accounts.authentication import Principal, Scope
from pipelines.tts.voices import AvailableVoice

TAG = "Deepgram's dialect"
router = make_router(TAG, scope="any", schemes=BEARER_OR_TOKEN)
tokens = make_router(TAG, scope="any", shows_secret=True, schemes=BEARER_OR_TOKEN)
routers = (router, tokens)

SCOPES: tuple[Scope, ...] = ("tts", "stt")
DEFAULT_TTL_S = 30.0
Json = dict[str, Any]


class GrantFields(BaseModel):
    ttl_seconds: float | None = Field(default=None, ge=1, le=3600)


@router.get("/v1/models", include_in_schema=False)
async def list_models(
    infrastructure: InfrastructureDep, principal: PrincipalDep, speech: SpeechDep
) -> Json:
    """Lists models as `GET /models` does. The fields `stt` and `tts`, for Deepgram's clients, list
    the recognisers and, with the scope `tts`, the voices."""
    models = await infrastructure.models.models()
    voices: Sequence[AvailableVoice] = ()
    if "tts" in principal.scopes:
        voices = await speech.synthesis.pipeline.directory.voices(principal.workspace_id)
    return {
        "object": "list",
        "data": [*map(shown_model, models)],
        "stt": [_recogniser(model.info) for model in models if model.info.kind == "stt"],
        "tts": [_voice(voice) for voice in voices],
    }


@router.get("/v1/models/{model_id:path}", include_in_schema=False)
async def get_model(
    model_id: str, infrastructure: InfrastructureDep, principal: PrincipalDep, speech: SpeechDep
) -> Json:
    """Finds a recogniser or voice by its UUID, or a model as `GET /models/{id}` does."""
    listing = await list_models(infrastructure, principal, speech)
    for entry in (*listing["stt"], *listing["tts"]):
        if model_id == entry["uuid"]:
            return dict(entry)
    return shown_model(await infrastructure.models.find(model_id)).model_dump()


@router.get("/v1/auth/token", summary="Get the API key's scopes, for Deepgram's clients")
async def show_key(principal: PrincipalDep) -> Json:
    return {"api_key_id": str(principal.key_id or ""), "scopes": sorted(principal.scopes)}


@tokens.post("/v1/auth/grant", summary="Create a short-lived token, for Deepgram's clients")
async def grant(request: Request, principal: PrincipalDep, platform: PlatformDep) -> Json:
    """Creates a browser token for speech and recognition, limited to the scopes of the key. The
    optional JSON body sets its lifetime in `ttl_seconds`. Default: 30 seconds."""
    # Clients name a type without a body, too: urllib, and `curl -d ""`.
    has_body = declared_bytes(request) or {"content-type", "transfer-encoding"} <= set(
        request.headers
    )
    sent = await read_json(request) if has_body else b""
    body = parse_json(sent) if sent else {}
    fields = validated(GrantFields, body if isinstance(body, dict) else {"ttl_seconds": body})
    seconds = fields.ttl_seconds or DEFAULT_TTL_S
    return {
        "access_token": await short_token(principal, platform, SCOPES, seconds),
        "expires_in": seconds,
    }


@router.get("/v1/projects", summary="List the workspace as a project, for Deepgram's clients")
async def list_projects(principal: PrincipalDep) -> Json:
    return {"projects": [_project(principal)]}


@router.get("/v1/projects/{project_id}", summary="Get a project, for Deepgram's clients")
async def get_project(project_id: str, principal: PrincipalDep) -> Json:
    if project_id != str(principal.workspace_id):
        raise ApiError("not_found", "no project has that id")
    return _project(principal)


def _project(principal: Principal) -> Json:
    name = principal.workspace
    return {"project_id": str(principal.workspace_id), "name": name, "mip_opt_out": True}


def _recogniser(info: ModelInfo) -> Json:
    abilities = dict.fromkeys(("batch", "streaming", "formatted_output"), True)
    return _model(info, info.id, uuid_of(info)) | {"languages": list(info.languages)} | abilities


def _voice(voice: AvailableVoice) -> Json:
    info = voice.info
    gender = "masculine" if info.gender == "male" else "feminine"
    metadata = {"accent": info.accent, "tags": [gender], "use_cases": list(info.categories)}
    model = _model(voice.model, info.name, voice.id)
    return model | {"languages": [voice.language], "metadata": metadata}


def _model(info: ModelInfo, name: str, uuid: str) -> Json:
    model_info = described(info)
    names = {"name": name, "canonical_name": name, "uuid": uuid}
    return names | {"architecture": model_info["arch"], "version": model_info["version"]}
