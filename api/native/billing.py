"""The workspace's plan, and what it used."""

import re
from datetime import date, datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field

from api.http.deps import PlatformDep, PrincipalDep
from api.http.errors import ApiError
from api.http.routing import make_router
from api.http.schemas import ErrorBody, RequestModel
from db.billing.ledger import DayOfUsage
from db.database import utc_now
from pipelines.billing.billing import to_usd
from pipelines.billing.subscriptions import BillingCycle, CurrentPlan

router = make_router(scope="billing")

DAYS_BY_DEFAULT = 30
MAX_DAYS = 366
MILLISECONDS = 1000
UNITS = {"tts": "characters", "stt": "seconds", "chat": "tokens", "voice": "voices"}


def _day(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("a day is written like 2026-01-31")
    return value


Day = Annotated[date, BeforeValidator(_day), Field(ge=date(2000, 1, 1))]


class Subscribe(RequestModel):
    plan_id: Annotated[str, Field(min_length=1, max_length=64)]
    billing_cycle: BillingCycle = "monthly"


class PlanSummary(BaseModel):
    id: str
    name: str
    price: float  # USD a month


class SubscriptionBody(BaseModel):
    id: str
    plan: PlanSummary
    status: str
    billing_cycle: BillingCycle
    next_billing_date: datetime


class Subscribed(BaseModel):
    subscription: SubscriptionBody


class CurrentPlanBody(BaseModel):
    plan: PlanSummary
    billing_cycle: BillingCycle
    next_billing_date: datetime


class UsageItem(BaseModel):
    date: date  # in UTC
    kind: str  # tts, stt, chat or voice
    units: float
    unit: str  # what is counted: characters, seconds, tokens or voices
    requests: int
    cost: float  # USD


class Usage(BaseModel):
    usage: list[UsageItem]
    total_cost: float  # USD
    credit_balance: float  # USD that can be spent now


@router.get("/billing/current-plan", tags=["billing"], summary="The plan of the workspace")
async def current_plan(principal: PrincipalDep, platform: PlatformDep) -> CurrentPlanBody:
    current = await platform.subscriptions.current_plan(principal.workspace_id)
    return CurrentPlanBody.model_validate(_terms(current))


@router.post(
    "/billing/subscribe",
    status_code=201,
    tags=["billing"],
    summary="Choose a plan",
    description="The new limits hold at once. A change of plan or cycle begins a new cycle now; "
    "the same plan and cycle again change nothing. A subscription takes nothing from the credit, "
    "which pays for work only: the operator bills for plans.",
    responses={404: {"model": ErrorBody, "description": "There is no such plan"}},
)
async def subscribe(body: Subscribe, principal: PrincipalDep, platform: PlatformDep) -> Subscribed:
    made = await platform.subscriptions.subscribe(
        principal.workspace_id, principal.actor, body.plan_id, body.billing_cycle
    )
    details = {"id": str(made.subscription_id), "status": made.status, **_terms(made)}
    return Subscribed.model_validate({"subscription": details})


@router.get("/billing/usage", tags=["billing"], summary="What was used and what it cost, by day")
async def list_usage(
    principal: PrincipalDep,
    platform: PlatformDep,
    first: Annotated[
        Day | None, Query(alias="from", description="First day, in UTC; 30 days back by default")
    ] = None,
    last: Annotated[
        Day | None, Query(alias="to", description="Last day, in UTC; today by default")
    ] = None,
) -> Usage:
    today = utc_now().date()
    if first is not None and first > (last or today):
        raise ApiError(400, "validation_error", "from: must not be after `to`", param="from")
    last = min(last or today, today)
    first = first or last - timedelta(days=DAYS_BY_DEFAULT - 1)
    if (last - first).days >= MAX_DAYS:
        raise ApiError(
            400, "validation_error", f"from: at most {MAX_DAYS} days are shown", param="from"
        )
    days = await platform.billing.usage(principal.workspace_id, first, last)
    credit = await platform.billing.credit(principal.workspace_id)
    return Usage(
        usage=[_usage_item(day) for day in days],
        total_cost=to_usd(sum(day.cost for day in days)),
        credit_balance=to_usd(credit),
    )


def _terms(current: CurrentPlan) -> dict[str, object]:
    plan = current.plan
    return {
        "plan": {"id": plan.id, "name": plan.name, "price": plan.price},
        "billing_cycle": current.billing_cycle,
        "next_billing_date": current.next_billing_at,
    }


def _usage_item(day: DayOfUsage) -> UsageItem:
    return UsageItem(
        date=day.day,
        kind=day.service,
        units=day.units / MILLISECONDS if day.service == "stt" else day.units,
        unit=UNITS.get(day.service, "units"),
        requests=day.requests,
        cost=to_usd(day.cost),
    )
