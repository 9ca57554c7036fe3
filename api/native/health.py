"""Liveness (`/healthz`) and readiness (`/readyz`)."""

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from api.http.deps import InfrastructureDep
from api.http.errors import ApiError
from api.http.routing import make_router
from api.http.schemas import ErrorBody

router = make_router(public=True)


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    status: Literal["ok", "degraded"] = "ok"
    degraded: list[Literal["limits", "files"]] = Field(
        default_factory=list,
        description="What lacks its store: `limits` have a stand-in, `files` are not kept",
    )


@router.get("/healthz", tags=["health"], summary="Whether the process answers")
async def healthz() -> Health:
    return Health()


@router.get(
    "/readyz",
    tags=["health"],
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
    """A degraded service works: limits are kept by each server for itself, and are stricter;
    without the store of files events have no `audio_url`."""
    if infrastructure.sockets.draining:
        raise ApiError(503, "unavailable", "not ready: this server is stopping")
    await infrastructure.database.ping()
    if missing := await infrastructure.models.missing(models.split(",") if models else ()):
        raise ApiError(503, "unavailable", f"not ready: {', '.join(missing)}")
    degraded: list[Literal["limits", "files"]] = []
    if infrastructure.limits.degraded:
        degraded.append("limits")
    if infrastructure.files.degraded:
        degraded.append("files")
    return Readiness(status="degraded" if degraded else "ok", degraded=degraded)
