"""Operator's API: running models, accounts of all workspaces, and deployments of models."""

from decimal import Decimal
from typing import Annotated

from fastapi import Depends, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from api.http.bodies import RequestModel
from api.http.context import context_of
from api.http.errors import ApiError
from api.http.routing import InfrastructureDep, OperatorRoute, PlatformDep, make_router
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
        raise ApiError("unavailable", "this server does not run in a cluster")
    return infrastructure.cluster


ClusterDep = Annotated[ClusterControl, Depends(_cluster)]
WorkspaceId = Annotated[int, Path(ge=1, lt=2**53)]


class Overview(BaseModel):
    brand: str
    version: str
    links: dict[str, str]
    models: dict[str, Model | None] = Field(
        description="Models by deployment; null if a model was never up."
    )
    problems: dict[str, str] = Field(description="Why models were not replaced, by deployment.")
    failures: dict[str, str] = Field(description="Why deployments do not start, by name.")
    differences: dict[str, str] = Field(
        description="How a process differs from the majority, by process."
    )


class WorkspacePage(BaseModel):
    workspaces: list[Customer]
    next: str | None = Field(description="Value of `after` for the next page.")


class CreditRequest(RequestModel):
    usd: Decimal = Field(strict=False, ge=-(10**9), le=10**9, decimal_places=6)
    reference: str | None = Field(None, min_length=1, max_length=MAX_REFERENCE)


class CreditBody(BaseModel):
    credit: float  # USD
    changed: bool = Field(description="False if the reference was booked before.")


class ModelsConfig(RequestModel):
    config: str = Field(min_length=1, description="Configuration in YAML.")


class DeployRequest(ModelsConfig):
    dry_run: bool = False


class DeployOutcome(BaseModel):
    ok: bool = Field(description="False if, for example, a replica kept its old model.")
    output: str = Field(description="One line per change, and the outcome.")


@router.get("/operator/overview", summary="Get an overview of models and problems")
async def overview(request: Request, infrastructure: InfrastructureDep) -> Overview:
    listed = await infrastructure.models.by_port()
    cluster = infrastructure.cluster
    return Overview(
        brand=BRAND,
        version=request.app.version,
        links=cluster.links if cluster else {},
        models={name: model and shown_model(model) for name, model in listed.items()},
        problems=dict(infrastructure.models.problems),
        failures=await cluster.failures() if cluster else {},
        differences=dict(infrastructure.differences),
    )


@router.get("/operator/workspaces", summary="List all workspaces")
async def list_workspaces(
    infrastructure: InfrastructureDep,
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 50,
    q: Annotated[str, Query(max_length=254, description="Part of an email, name or id.")] = "",
) -> WorkspacePage:
    customers = await infrastructure.database.read(
        administration.customers,
        after,
        limit + 1,
        q.strip(),
        free_workspace_id=infrastructure.settings.free_workspace_id,
    )
    page = customers[:limit]
    return WorkspacePage(workspaces=page, next=page[-1].id if len(customers) > limit else None)


@router.post("/operator/workspaces/{workspace_id}/credit", summary="Add or remove credit")
async def credit(
    workspace_id: WorkspaceId, body: CreditRequest, infrastructure: InfrastructureDep
) -> CreditBody:
    """A `reference`, such as a payment id, is booked only once."""
    balance, changed = await administration.change_credit(
        infrastructure.database, workspace_id, int(body.usd * MICRO_USD), body.reference
    )
    return CreditBody(credit=balance, changed=changed)


@router.post("/operator/workspaces/{workspace_id}/plan", summary="Set the plan of a workspace")
async def plan(
    workspace_id: WorkspaceId, body: Subscribe, platform: PlatformDep
) -> CurrentPlanBody:
    subscribe = platform.subscriptions.subscribe
    current = await subscribe(workspace_id, ACTOR, body.plan_id, body.billing_cycle)
    return CurrentPlanBody.model_validate(current)


@router.get("/operator/config", summary="Get the running model configuration")
async def running_config(cluster: ClusterDep) -> ModelsConfig:
    return ModelsConfig(config=await cluster.running())


@router.post("/operator/deploy", summary="Check or deploy a model configuration")
async def deploy(body: DeployRequest, request: Request, cluster: ClusterDep) -> DeployOutcome:
    """An invalid configuration returns 400 and changes nothing. The response comes when all models
    serve, or one has failed. If the deployment replaces the gateways, the connection of this
    request breaks, and the deployment continues."""
    context_of(request).turn.leave()
    ok, output = await cluster.deploy(body.config, only_check=body.dry_run)
    return DeployOutcome(ok=ok, output=output)
