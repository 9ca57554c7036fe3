"""Liveness (`/healthz`), readiness (`/readyz`), and the metrics of every process for Prometheus."""

import hmac
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from api.http.bodies import ErrorBody
from api.http.errors import ApiError
from api.http.limits import peer_address
from api.http.routing import InfrastructureDep, credential_of, make_router, services_of
from telemetry.reports import MEDIA_TYPE, render

router = make_router("health", public=True)

_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")

Store = Literal["limits", "files"]


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ok", "degraded"] = "ok"
    degraded: list[Store] = Field(
        default_factory=list,
        description="Unavailable stores: `limits` are applied per server, `files` are not stored",
    )


@router.get("/healthz", summary="Whether the process answers")
async def healthz() -> Health:
    return Health()


@router.get(
    "/readyz",
    summary="Whether the database and every model answer",
    responses={404: {"model": ErrorBody, "description": "No model is deployed by that name"}},
)
async def readyz(
    infrastructure: InfrastructureDep,
    models: Annotated[
        str | None,
        Query(description="Names of model deployments, joined by commas: only these must answer"),
    ] = None,
) -> Readiness:
    """A degraded service works: without the store of limits each server applies its own, stricter
    limits; without the store of files events have no `audio_url`."""
    if infrastructure.sockets.draining:
        raise ApiError("unavailable", "not ready: this server is stopping")
    await infrastructure.database.ping()
    if missing := await infrastructure.models.missing(models.split(",") if models else ()):
        raise ApiError("unavailable", f"not ready: {', '.join(missing)}")
    stores: dict[Store, bool] = {
        "limits": infrastructure.limits.degraded,
        "files": infrastructure.files.degraded,
    }
    degraded = [store for store, is_degraded in stores.items() if is_degraded]
    return Readiness(status="degraded" if degraded else "ok", degraded=degraded)


async def _metrics(request: Request) -> Response:
    infrastructure = services_of(request).infrastructure
    _check_access(request, infrastructure.settings.metrics_token)
    page = render(await infrastructure.reports.all())
    return Response(page, headers={"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"})


def _check_access(request: Request, token: str | None) -> None:
    """Raises ApiError. Without a token only this machine is admitted, and not through a proxy."""
    if token is not None:
        if not hmac.compare_digest(credential_of(request).encode(), token.encode()):
            raise ApiError("unauthorized", "the token of the metrics is missing or wrong")
        return
    peer = peer_address(request) if request.app.state.sees_clients else None
    if peer is None or not peer.is_loopback or any(one in request.headers for one in _FORWARDED):
        raise ApiError("not_found", "there is nothing at this path")


# A plain Starlette route: it is the operator's, and not part of the OpenAPI document.
routes: list[BaseRoute] = [Route("/metrics", _metrics)]
