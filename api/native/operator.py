"""What runs, the accounts of all workspaces, and deployments of models, for the operator."""

from decimal import Decimal
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from api.http.bodies import RequestModel
from api.http.errors import ApiError
from api.http.routing import InfrastructureDep, OperatorRoute, PlatformDep, make_router
from api.http.turns import turn_of
from api.native.billing import CurrentPlanBody, Subscribe
from api.native.models import Model, shown_model
from api.services import ClusterControl
from configs.settings import BRAND
from pipelines.billing import administration
from pipelines.billing.administration import ACTOR, MAX_REFERENCE, Customer
from pipelines.billing.billing import MICRO_USD

router = make_router("operator", route_class=OperatorRoute)


async def _cluster(infrastructure: InfrastructureDep) -> ClusterControl:
    if infrastructure.cluster is None:
        raise ApiError("unavailable", "this server has no cluster")
    return infrastructure.cluster


ClusterDep = Annotated[ClusterControl, Depends(_cluster)]
WorkspaceId = Annotated[int, Path(ge=1, lt=2**53)]


class Overview(BaseModel):
    brand: str
    version: str
    links: dict[str, str]
    models: dict[str, Model | None] = Field(description="By deployment; null if it was never up")
    problems: dict[str, str] = Field(description="By deployment, why it keeps its previous model")
    differences: dict[str, str] = Field(description="By process, how it differs from most others")


class WorkspacePage(BaseModel):
    workspaces: list[Customer]
    next: str | None = Field(description="`after` of the next page")


class CreditRequest(RequestModel):
    usd: Decimal = Field(strict=False, ge=-(10**9), le=10**9, decimal_places=6)
    reference: str | None = Field(None, min_length=1, max_length=MAX_REFERENCE)


class CreditBody(BaseModel):
    credit: float  # USD
    changed: bool = Field(description="False where the reference was booked before")


class ModelsConfig(RequestModel):
    config: str = Field(min_length=1, description="YAML")


class DeployRequest(ModelsConfig):
    dry_run: bool = False


class DeployOutcome(BaseModel):
    ok: bool = Field(description="False where a replica keeps its previous model, for example")
    output: str = Field(description="What changes, a line for each, and the outcome")


@router.get("/operator/overview", summary="Models, and what is wrong; `GET /metrics` has the load")
async def overview(request: Request, infrastructure: InfrastructureDep) -> Overview:
    listed = await infrastructure.models.by_port()
    return Overview(
        brand=BRAND,
        version=request.app.version,
        links=infrastructure.cluster.links if infrastructure.cluster else {},
        models={name: one and shown_model(one) for name, one in listed.items()},
        problems=dict(infrastructure.models.problems),
        differences=dict(infrastructure.differences),
    )


@router.get("/operator/workspaces", summary="All workspaces, by id")
async def list_workspaces(
    infrastructure: InfrastructureDep,
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    q: Annotated[str, Query(max_length=254, description="A part of address, name or id")] = "",
) -> WorkspacePage:
    read = infrastructure.database.read
    found = await read(administration.customers, after, limit + 1, q.strip())
    is_last = len(found) <= limit
    return WorkspacePage(workspaces=found[:limit], next=None if is_last else found[limit - 1].id)


@router.post("/operator/workspaces/{workspace_id}/credit", summary="Add or take credit")
async def credit(
    workspace_id: WorkspaceId, body: CreditRequest, infrastructure: InfrastructureDep
) -> CreditBody:
    """A `reference`, such as the id of a payment, is booked only once."""
    database, amount = infrastructure.database, int(body.usd * MICRO_USD)
    change = administration.change_credit
    now, changed = await change(database, workspace_id, amount, body.reference)
    return CreditBody(credit=now, changed=changed)


@router.post("/operator/workspaces/{workspace_id}/plan", summary="Put a workspace on a plan")
async def plan(
    workspace_id: WorkspaceId, body: Subscribe, platform: PlatformDep
) -> CurrentPlanBody:
    subscribe = platform.subscriptions.subscribe
    made = await subscribe(workspace_id, ACTOR, body.plan_id, body.billing_cycle)
    return CurrentPlanBody.model_validate(made)


@router.get("/operator/config", summary="The configuration of models that runs")
async def running_config(cluster: ClusterDep) -> ModelsConfig:
    return ModelsConfig(config=await cluster.running())


@router.post("/operator/deploy", summary="Check or deploy a configuration of models")
async def deploy(body: DeployRequest, request: Request, cluster: ClusterDep) -> DeployOutcome:
    """A wrong one changes nothing, and is 400. The answer comes when all models serve, or one
    cannot. A deployment that replaces the gateways cuts its own answer, and goes on."""
    turn_of(request).leave()
    ok, output = await cluster.deploy(body.config, only_check=body.dry_run)
    return DeployOutcome(ok=ok, output=output)
