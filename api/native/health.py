"""Liveness (`/healthz`), readiness (`/readyz`), and the metrics of every process for Prometheus."""

import hmac
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from api.http.addresses import host_of, is_direct
from api.http.errors import ApiError
from api.http.routing import InfrastructureDep, credential_of, make_router, services_of
from configs.environment import is_loopback
from configs.settings import Settings
from pipelines.ports import Arrival
from telemetry.reports import MEDIA_TYPE, OPEN_METRICS, render

router = make_router("health", public=True)

Part = Literal["limits", "files", "models", "cluster"]


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class ChatReadiness(BaseModel):
    model: str | None = Field(description="Model id. Null without weights; chats then return 503.")
    coming: Arrival | None = Field(
        default=None, description="Model that takes over once its weights are downloaded."
    )


class Readiness(BaseModel):
    status: Literal["ok", "degraded"] = "ok"
    degraded: list[Part] = Field(
        default_factory=list,
        description="Degraded parts. `limits`: limits apply per server. `files`: files are not "
        "stored, or a disk is nearly full. `models`: a model could not be replaced in the last "
        "deployment. `cluster`: processes differ in code or prices, or do not share their data.",
    )
    models: dict[str, str] | None = Field(
        default=None,
        description="Reason why a model was not replaced, by deployment. Only returned to callers "
        "on the service's machine, or with the token of the operator or of the metrics.",
    )
    chat: ChatReadiness | None = Field(default=None, description="Default chat model.")
    cluster: dict[str, str] | None = Field(
        default=None,
        description="How a process differs from the majority, by process. Only returned to "
        "callers on the service's machine, or with the token of the operator or of the metrics.",
    )


@router.get("/healthz", summary="Check liveness")
async def healthz() -> Health:
    return Health()


@router.get("/readyz", summary="Check readiness", response_model_exclude_none=True)
async def readyz(
    request: Request,
    infrastructure: InfrastructureDep,
    models: Annotated[
        str | None, Query(description="Comma-separated deployments to check. Default: all.")
    ] = None,
) -> Readiness:
    """Succeeds when the database and every model respond. A degraded service still works: without
    the limit store, each server applies its own, stricter limits; without the file store, events
    have no `audio_url`; a model that could not be replaced keeps serving (see `GET /models`)."""
    if infrastructure.sockets.draining:
        raise ApiError("unavailable", "not ready: this server is stopping")
    await infrastructure.pings.get(None, infrastructure.database.ping)
    if missing := await infrastructure.models.missing(models.split(",") if models else ()):
        raise ApiError("unavailable", f"not ready: {', '.join(missing)}")
    problems = infrastructure.models.problems
    differences = infrastructure.differences
    settings = infrastructure.settings
    gets_reasons = _is_local(request, settings) or _has_token(request, settings)
    chat = None
    if (model := await infrastructure.models.first_chat()) is not None:
        chat = ChatReadiness(model=None if model.info.is_awaited else model.info.id)
        if model.coming is not None:
            problem = model.coming.problem if gets_reasons else None
            chat.coming = model.coming.model_copy(update={"problem": problem})
    parts: dict[Part, bool] = {
        "limits": infrastructure.limits.degraded,
        "files": infrastructure.files.degraded or bool(await infrastructure.files.space.low()),
        "models": bool(problems),
        "cluster": bool(differences),
    }
    degraded = [part for part, is_degraded in parts.items() if is_degraded]
    return Readiness(
        status="degraded" if degraded else "ok",
        degraded=degraded,
        models=dict(problems) if problems and gets_reasons else None,
        chat=chat,
        cluster=dict(differences) if differences and gets_reasons else None,
    )


async def _metrics(request: Request) -> Response:
    infrastructure = services_of(request).infrastructure
    _check_access(request, infrastructure.settings)
    is_open = "application/openmetrics-text" in request.headers.get("accept", "")
    kind = OPEN_METRICS if is_open else MEDIA_TYPE
    page = render(await infrastructure.reports.all(), kind)
    return Response(page, headers={"Content-Type": kind, "Cache-Control": "no-store"})


def _check_access(request: Request, settings: Settings) -> None:
    """Raises ApiError unless the caller has the operator's or the metrics token. Without a metrics
    token, programs on this machine are admitted, but not through a proxy."""
    if _has_token(request, settings):
        return
    if settings.metrics_token is not None:
        raise ApiError("unauthorized", "the metrics token is missing or wrong")
    if not _is_local(request, settings):
        raise ApiError("not_found", "this path does not exist")


def _has_token(request: Request, settings: Settings) -> bool:
    sent = credential_of(request).encode()
    tokens = filter(None, (settings.operator_token, settings.metrics_token))
    return any([hmac.compare_digest(sent, token.encode()) for token in tokens])


def _is_local(request: Request, settings: Settings) -> bool:
    """Whether the request comes from a program on this machine. PUBLIC_URL, which a proxy requires
    for file URLs, reveals a proxy that `is_direct` does not detect."""
    return is_direct(request) and is_loopback(host_of(settings.public_url))


async def _serve_healthz(_: Request) -> Response:
    """Answers like Serve's proxy. If that is disabled, KubeRay asks the gateway instead, both as
    the readiness probe of a pod and to choose the pods that get requests."""
    return Response("success", media_type="text/plain")


# Plain Starlette routes keep these operator's endpoints out of the OpenAPI document.
routes: list[BaseRoute] = [Route("/metrics", _metrics), Route("/-/healthz", _serve_healthz)]
