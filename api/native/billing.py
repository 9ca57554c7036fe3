"""Plans, the plan of a workspace, and its usage."""

import re
from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request

from api.http.bodies import Id, RequestModel, Shown
from api.http.errors import InvalidField
from api.http.routing import InfrastructureDep, PlatformDep, PrincipalDep, make_router
from db.billing import ledger
from db.billing.ledger import DayOfUsage
from db.database import utc_now
from pipelines.billing.billing import to_usd
from pipelines.billing.subscriptions import BillingCycle
from pipelines.errors import NotFound, PlanChangeRefused

plans = make_router("billing", scope="any")
router = make_router("billing", scope="billing")
confirmations = make_router("billing", public=True)
routers = (plans, router, confirmations)

DAYS_BY_DEFAULT = 30
MAX_DAYS = 366
MILLISECONDS = 1000
UNITS = {
    "tts": "characters",
    "stt": "seconds",
    "chat": "tokens",
    "voice": "voices",
    "embedding": "tokens",
}


def _day(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("must be a date such as 2026-01-31")
    return value


Day = Annotated[
    date,
    BeforeValidator(_day),
    Field(ge=date(2000, 1, 1)),
    WithJsonSchema({"type": "string", "format": "date"}),  # which has no limits for dates
]


class Subscribe(RequestModel):
    plan_id: Annotated[str, Field(min_length=1, max_length=64)]
    billing_cycle: BillingCycle = "monthly"


class PlanSummary(Shown):
    id: str
    name: str
    price: float  # USD a month


class Plan(PlanSummary):
    features: list[str]


class PlanList(BaseModel):
    plans: list[Plan]


class SubscriptionBody(Shown):
    id: Id
    plan: PlanSummary
    status: str
    billing_cycle: BillingCycle
    next_billing_date: datetime


class Subscribed(BaseModel):
    subscription: SubscriptionBody
    checkout_url: str | None = Field(
        default=None, description="Page where a `pending` change is paid for."
    )


class PlanConfirmation(Subscribe):
    workspace: Annotated[
        str, Field(pattern="^[0-9]{1,16}$", description="Id from `plan.requested`.")
    ]


class CurrentPlanBody(Shown):
    plan: PlanSummary
    billing_cycle: BillingCycle
    next_billing_date: datetime


class UsageItem(BaseModel):
    date: date  # in UTC
    kind: str  # tts, stt, chat, voice or embedding
    key_id: Annotated[
        str | None, Field(description="API key, if `by` is `key`; null for sessions and tokens.")
    ] = None
    units: float
    unit: str  # what is counted: characters, seconds, tokens or voices
    requests: int
    cost: float  # USD


class Storage(BaseModel):
    used: int = Field(description="Bytes used by files, voices, jobs and saved chats.")
    limit: int = Field(description="Bytes allowed by the plan.")


class Usage(BaseModel):
    usage: list[UsageItem]
    total_cost: float  # USD
    credit_balance: float  # USD that can be spent now
    credit_held: float = Field(description="USD set aside for work in progress.")
    storage: Storage  # current use, regardless of `from` and `to`


@plans.get("/plans", summary="List plans")
async def list_plans(platform: PlatformDep) -> PlanList:
    return PlanList(plans=[Plan.model_validate(plan) for plan in platform.plans.plans])


@router.get("/billing/current-plan", summary="Get the current plan")
async def current_plan(principal: PrincipalDep, platform: PlatformDep) -> CurrentPlanBody:
    current = await platform.subscriptions.current_plan(
        principal.workspace_id, is_owner=principal.is_owner
    )
    return CurrentPlanBody.model_validate(current)


@router.post(
    "/billing/subscribe",
    status_code=201,
    summary="Choose a plan",
    description="The new limits apply immediately, and a new billing cycle starts. Choosing the "
    "current plan and cycle has no effect. The operator bills for plans; credit pays only for "
    "requests. If the operator's payment system has to confirm the change, the response has the "
    "status `pending`, and the plan changes on confirmation.",
    response_model_exclude_none=True,
)
async def subscribe(body: Subscribe, principal: PrincipalDep, platform: PlatformDep) -> Subscribed:
    if platform.plan_changes == "operator":
        raise PlanChangeRefused("only the operator of this service changes plans")
    await platform.request_limits.count_change(principal)
    if platform.payments is not None:
        pending = platform.subscriptions.pending(body.plan_id, body.billing_cycle)
        subscription = SubscriptionBody.model_validate(pending)
        change = {
            "id": subscription.id,
            "workspace": str(principal.workspace_id),
            "workspace_name": principal.workspace,
            "current_plan": principal.plan,
            "plan": subscription.plan.model_dump(),
            "billing_cycle": subscription.billing_cycle,
        }
        checkout_url = await platform.payments.request(subscription.id, change)
        return Subscribed(subscription=subscription, checkout_url=checkout_url)
    subscribed = await platform.subscriptions.subscribe(
        principal.workspace_id, principal.actor, body.plan_id, body.billing_cycle
    )
    return Subscribed(subscription=SubscriptionBody.model_validate(subscribed))


@confirmations.post(
    "/billing/confirmations", summary="Confirm a plan change, as the operator's payment system"
)
async def confirm_plan(
    body: PlanConfirmation, request: Request, platform: PlatformDep
) -> CurrentPlanBody:
    """The message must be signed like a webhook, with `PLAN_WEBHOOK_SECRET`. It takes effect once;
    a repeated message returns the current plan."""
    if platform.payments is None:
        raise NotFound("no payment system is configured for plan changes")
    message_id = platform.payments.check(request.headers, await request.body())
    changed = await platform.subscriptions.subscribe(
        int(body.workspace), "payments", body.plan_id, body.billing_cycle, message_id
    )
    return CurrentPlanBody.model_validate(changed)


@router.get("/billing/usage", summary="Get usage and cost by day")
async def list_usage(
    principal: PrincipalDep,
    platform: PlatformDep,
    infrastructure: InfrastructureDep,
    first: Annotated[
        Day | None, Query(alias="from", description="First day, UTC. Default: 29 days before `to`.")
    ] = None,
    last: Annotated[
        Day | None, Query(alias="to", description="Last day, UTC. Default: today.")
    ] = None,
    by: Annotated[
        Literal["key"] | None, Query(description="`key` adds a breakdown by API key.")
    ] = None,
) -> Usage:
    today = utc_now().date()
    if first is not None and first > (last or today):
        raise InvalidField("from", "must not be after `to`")
    last = min(last or today, today)
    first = first or last - timedelta(days=DAYS_BY_DEFAULT - 1)
    if (last - first).days >= MAX_DAYS:
        raise InvalidField("from", f"the range can have at most {MAX_DAYS} days")
    days = await platform.billing.usage(principal.workspace_id, first, last, by_key=by == "key")
    if len(days) > ledger.MOST_SUMS:
        reason = f"the range has more than {ledger.MOST_SUMS} items; ask for fewer days"
        raise InvalidField("from", reason)
    credit = await platform.billing.credit(principal.workspace_id)
    used, limit = await infrastructure.files.use_and_limit(principal.workspace_id)
    return Usage(
        usage=[_usage_item(day) for day in days],
        total_cost=to_usd(sum(day.cost for day in days)),
        credit_balance=to_usd(credit),
        credit_held=to_usd(await platform.billing.held(principal.workspace_id)),
        storage=Storage(used=used, limit=limit),
    )


def _usage_item(day: DayOfUsage) -> UsageItem:
    return UsageItem(
        date=day.day,
        kind=day.service,
        key_id=str(day.key_id) if day.key_id else None,
        units=day.units / MILLISECONDS if day.service == "stt" else day.units,
        unit=UNITS.get(day.service, "units"),
        requests=day.requests,
        cost=to_usd(day.cost),
    )
