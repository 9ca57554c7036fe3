"""Plans: the plan of a workspace, its billing cycle, and its next billing date. A subscription
records what was agreed and decides the limits. It takes nothing from the credit, which is for work:
plans are billed by the operator."""

import calendar
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from uuid import UUID, uuid4

from configs.schema.platform import PlanConfig, PlansConfig
from db.accounts import Workspace
from db.billing import subscriptions
from db.billing.subscriptions import Subscription
from db.database import Database, utc_now
from pipelines.accounts.authentication import Authenticator
from pipelines.errors import NotFound, PlanNotFound

BillingCycle = Literal["monthly", "annual"]
MONTHS: dict[str, int] = {"monthly": 1, "annual": 12}


@dataclass(frozen=True, slots=True)
class CurrentPlan:
    """Plan of a workspace, or a pending one; `id` is None before the first subscription."""

    plan: PlanConfig
    billing_cycle: str
    next_billing_date: datetime
    id: UUID | None
    status: str = "active"


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscribes workspaces to plans."""

    database: Database
    plans: PlansConfig
    authenticator: Authenticator
    now: Callable[[], datetime] = utc_now

    async def subscribe(
        self,
        workspace_id: int,
        actor: str,
        plan_id: str,
        billing_cycle: BillingCycle,
        message_id: str | None = None,
    ) -> CurrentPlan:
        """Subscribes a workspace; limits apply at once in this process, in others within seconds. A
        message with an id is applied once. Raises PlanNotFound, NotFound or DatabaseUnavailable."""
        plan = self._find(plan_id)
        subscribed = await self.database.run(
            subscriptions.subscribe,
            workspace_id,
            plan.id,
            billing_cycle,
            self.now(),
            actor,
            message_id,
        )
        self.authenticator.forget_workspace(workspace_id)
        return self._current(subscribed)

    def pending(self, plan_id: str, billing_cycle: BillingCycle) -> CurrentPlan:
        """Previews the result of `subscribe`, under an id for payments. Raises PlanNotFound."""
        next_at = next_billing_date(self.now(), billing_cycle, self.now())
        return CurrentPlan(self._find(plan_id), billing_cycle, next_at, uuid4(), "pending")

    async def current_plan(self, workspace_id: int, *, is_owner: bool = False) -> CurrentPlan:
        """Reads the plan; that of the owner if `is_owner`. Without a subscription, its monthly
        cycle starts at the creation. Raises NotFound or DatabaseUnavailable."""
        current = await self.database.read(subscriptions.workspace_and_subscription, workspace_id)
        plan = self._current(current)
        return replace(plan, plan=self.plans.owner) if is_owner else plan

    def _find(self, plan_id: str) -> PlanConfig:
        plan = self.plans.find(plan_id)
        if plan is None:
            raise PlanNotFound("plan_id: there is no such plan; GET /plans lists them")
        return plan

    def _current(self, rows: tuple[Workspace, Subscription | None] | None) -> CurrentPlan:
        if rows is None:
            raise NotFound("there is no such workspace")
        workspace, subscription = rows
        plan = self.plans.find(workspace.plan) or self.plans.first
        if subscription is None:
            next_at = next_billing_date(workspace.created_at, "monthly", self.now())
            return CurrentPlan(plan, "monthly", next_at, None)
        cycle = subscription.billing_cycle
        next_at = next_billing_date(subscription.anchor_at, cycle, self.now())
        return CurrentPlan(plan, cycle, next_at, subscription.id, subscription.status)


def next_billing_date(anchor: datetime, billing_cycle: str, now: datetime) -> datetime:
    """Returns the first moment after `now` that is one or more whole cycles after `anchor`. Counted
    from the anchor each time: after 31 January come 28 February and 31 March."""
    step = MONTHS[billing_cycle]
    passed = (now.year - anchor.year) * 12 + now.month - anchor.month
    cycles = max(1, passed // step)
    while (moment := _months_after(anchor, cycles * step)) <= now:
        cycles += 1
    return moment


def _months_after(anchor: datetime, months: int) -> datetime:
    """Returns the same day and time some months later, or the last day of a shorter month."""
    years, month = divmod(anchor.month - 1 + months, 12)
    year, month = anchor.year + years, month + 1
    last_day = calendar.monthrange(year, month)[1]
    return anchor.replace(year=year, month=month, day=min(anchor.day, last_day))
