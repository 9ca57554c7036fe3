"""Billing dates: months of every length, leap years, and changes of plan."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from configs.settings import Secrets
from db.database import Database
from pipelines.accounts.authentication import Principal
from pipelines.accounts.service import Accounts
from pipelines.billing.subscriptions import MONTHS, Subscriptions, next_billing_date
from pipelines.errors import NotFound, PlanNotFound
from tests.migrated import sqlite_database

MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2120, 1, 1), timezones=st.just(UTC))


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("anchor", "cycle", "now", "expected"),
    [
        ("2027-01-15", "monthly", "2027-01-15", "2027-02-15"),
        ("2027-01-31", "monthly", "2027-01-31", "2027-02-28"),
        ("2028-01-31", "monthly", "2028-01-31", "2028-02-29"),
        ("2027-01-31", "monthly", "2027-02-28", "2027-03-31"),  # not the 28th
        ("2027-01-31", "monthly", "2027-04-29", "2027-04-30"),
        ("2027-01-31", "monthly", "2027-04-30", "2027-05-31"),
        ("2027-12-31", "monthly", "2027-12-31", "2028-01-31"),
        ("2027-03-05T12:00:00", "monthly", "2027-04-05T11:59:59", "2027-04-05T12:00:00"),
        ("2027-03-05T12:00:00", "monthly", "2027-04-05T12:00:00", "2027-05-05T12:00:00"),
        ("2027-01-15", "annual", "2027-06-01", "2028-01-15"),
        ("2028-02-29", "annual", "2028-02-29", "2029-02-28"),
        ("2028-02-29", "annual", "2031-02-28", "2032-02-29"),
        ("2028-02-29", "annual", "2031-02-27", "2031-02-28"),
    ],
)
def test_the_next_billing_date_is_whole_cycles_after_the_anchor(
    anchor: str, cycle: str, now: str, expected: str
) -> None:
    assert next_billing_date(day(anchor), cycle, day(now)) == day(expected)


@given(
    anchor=MOMENTS,
    later=st.timedeltas(timedelta(0), timedelta(36_000)),
    cycle=st.sampled_from(list(MONTHS)),
)
def test_the_next_billing_date_is_the_first_one_after_now(
    anchor: datetime, later: timedelta, cycle: str
) -> None:
    now = anchor + later
    due = next_billing_date(anchor, cycle, now)
    assert now < due <= now + timedelta(days=31 if cycle == "monthly" else 366)
    assert due.time() == anchor.time()
    assert due.day == anchor.day or (due + timedelta(days=1)).day == 1
    assert ((due.year - anchor.year) * 12 + due.month - anchor.month) % MONTHS[cycle] == 0


class Tenant:
    """Subscriptions over a database with one signed-up workspace, and a clock."""

    def __init__(self, database: Database) -> None:
        plans = load_yaml(PlansConfig, "plans")
        secrets = Secrets(("k" * 32,), "p" * 32, "u" * 32, ())
        self.now = day("2027-01-31")
        self.accounts = Accounts(database, secrets, plans)
        self.subscriptions = Subscriptions(
            database, plans, self.accounts.authenticator, lambda: self.now
        )
        self.token = ""

    async def principal(self) -> Principal:
        return await self.accounts.authenticator.authenticate(self.token)


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    with sqlite_database(tmp_path) as database:
        made = Tenant(database)
        made.token = (await made.accounts.sign_up("a@b.example", "a long password", "", "")).token
        yield made


async def test_a_new_plan_applies_from_the_next_request(tenant: Tenant) -> None:
    before = await tenant.principal()
    assert before.plan == "free"
    await tenant.subscriptions.subscribe(before.workspace_id, before.actor, "pro", "monthly")
    assert (await tenant.principal()).plan == "pro"


async def test_only_a_change_of_plan_or_cycle_restarts_the_billing_cycle(tenant: Tenant) -> None:
    caller = await tenant.principal()

    async def subscribe(plan: str, cycle: str) -> tuple[object, str]:
        made = await tenant.subscriptions.subscribe(
            caller.workspace_id,
            caller.actor,
            plan,
            cycle,  # type: ignore[arg-type]
        )
        return made.id, f"{made.next_billing_date:%Y-%m-%d}"

    identity, due = await subscribe("pro", "monthly")
    assert due == "2027-02-28"
    tenant.now = day("2027-02-10")
    assert await subscribe("pro", "monthly") == (identity, "2027-02-28")
    assert await subscribe("pro", "annual") == (identity, "2028-02-10")
    tenant.now = day("2027-03-01")
    assert await subscribe("free", "monthly") == (identity, "2027-04-01")
    current = await tenant.subscriptions.current_plan(caller.workspace_id)
    assert (current.plan.id, current.billing_cycle) == ("free", "monthly")


async def test_a_new_workspace_has_the_free_plan_with_a_monthly_cycle(tenant: Tenant) -> None:
    caller = await tenant.principal()
    tenant.now = datetime.now(UTC)
    current = await tenant.subscriptions.current_plan(caller.workspace_id)
    assert (current.plan.id, current.billing_cycle, current.id) == ("free", "monthly", None)
    assert timedelta(27) < current.next_billing_date - tenant.now < timedelta(32)


async def test_unknown_plans_and_workspaces_are_refused(tenant: Tenant) -> None:
    caller = await tenant.principal()
    with pytest.raises(PlanNotFound):
        await tenant.subscriptions.subscribe(caller.workspace_id, "x", "gold", "monthly")
    with pytest.raises(NotFound):
        await tenant.subscriptions.subscribe(404, "x", "pro", "monthly")
    with pytest.raises(NotFound):
        await tenant.subscriptions.current_plan(404)
