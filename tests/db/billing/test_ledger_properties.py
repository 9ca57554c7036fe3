"""Property test: the ledger stays consistent in any order of operations, retries and crashes."""

import itertools
from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine
from sqlmodel import Session, select

from db.billing import ledger
from db.billing.ledger_check import check_days
from db.billing.tables import LedgerEntry
from db.database import make_engine, utc_now
from tests.db.billing.ledger_work import transact
from tests.migrated import migrate

AMOUNTS = st.integers(0, 2_000)
_workspaces, _changes = itertools.count(1), itertools.count(1)


class _Crash(Exception):
    """A process that dies before its transaction commits."""


class LedgerMachine(RuleBasedStateMachine):
    """Runs each operation on the ledger and on a reference model in memory, and compares them."""

    engine: Engine
    ahead = timedelta()  # of the clock that dates entries, against the real one
    operations: Bundle[str] = Bundle("operations")

    @rule(days=st.integers(-2, 40))
    def advance_clock(self, days: int) -> None:
        type(self).ahead += timedelta(days=days)

    @initialize(credit=AMOUNTS)
    def open_account(self, credit: int) -> None:
        self.workspace = next(_workspaces)
        transact(self.engine, ledger.open_account, self.workspace, credit)
        self.balance = credit
        self.held: dict[str, int] = {}
        self.expired: dict[str, int] = {}  # the amounts that were held
        self.ended: dict[str, str] = {}  # captured, released, refunded, refused or expired
        self.charged: dict[str, int] = {}
        self.units: dict[str, int] = {}

    @rule(target=operations, amount=AMOUNTS)
    def hold(self, amount: int) -> str:
        operation = f"{self.workspace}-{len(self.held) + len(self.ended)}"
        enough = self.balance - sum(self.held.values()) >= amount
        assert enough == transact(
            self.engine,
            ledger.hold,
            workspace_id=self.workspace,
            operation=operation,
            service="tts",
            amount=amount,
            expires_at=utc_now(),
        )
        if enough:
            self.held[operation] = amount
        else:
            self.ended[operation] = "refused"
        return operation

    @rule(operation=operations, cost=AMOUNTS)
    def capture(self, operation: str, cost: int) -> None:
        done = transact(
            self.engine,
            ledger.capture,
            workspace_id=self.workspace,
            operation=operation,
            service="tts",
            cost=cost,
            units=cost // 2,
        )
        if done.is_new:
            self.units[operation] = cost // 2
        if operation in self.held:
            charged = min(cost, self.held.pop(operation))
            self.balance -= charged
            self.charged[operation] = charged
            self.ended[operation] = "captured"
            assert done == ledger.Settled(charged, is_new=True)
        elif self.ended[operation] == "expired":
            left = self.balance - sum(self.held.values())
            charged = min(cost, self.expired[operation], left)
            self.balance -= charged
            self.charged[operation] = charged
            self.ended[operation] = "captured"
            assert done == ledger.Settled(charged, is_new=True)
        elif self.ended[operation] in ("captured", "refunded"):
            assert done == ledger.Settled(self.charged[operation], is_new=False)
        else:
            assert done == ledger.Settled(0, is_new=False)

    @rule(operation=operations)
    def release(self, operation: str) -> None:
        done = transact(
            self.engine,
            ledger.release,
            workspace_id=self.workspace,
            operation=operation,
            service="tts",
        )
        assert done == (operation in self.held or self.ended.get(operation) == "expired")
        if done:
            self.held.pop(operation, None)
            self.ended[operation] = "released"

    @rule(operation=operations)
    def refund(self, operation: str) -> None:
        done = transact(self.engine, ledger.refund, self.workspace, operation)
        assert done == (self.ended.get(operation) == "captured")
        if done:
            self.balance += self.charged[operation]
            self.ended[operation] = "refunded"

    @rule()
    def expire(self) -> None:
        later = utc_now() + timedelta(seconds=1)
        assert transact(self.engine, ledger.release_expired, later) == len(self.held)
        self.ended |= dict.fromkeys(self.held, "expired")
        self.expired |= self.held
        self.held.clear()

    @rule(amount=st.integers(-2_000, 2_000))
    def change_credit(self, amount: int) -> None:
        allowed = self.balance - sum(self.held.values()) + amount >= 0
        operation = f"change-{next(_changes)}"
        for outcome in ("done", "done_before"):
            assert transact(
                self.engine, ledger.change_credit, self.workspace, operation, amount, "operator"
            ) == (outcome if allowed else "too_little")
        self.balance += amount if allowed else 0

    @rule(operation=operations)
    def crash_while_capturing(self, operation: str) -> None:
        def work(session: object) -> None:
            ledger.capture(
                session,  # type: ignore[arg-type]
                workspace_id=self.workspace,
                operation=operation,
                service="tts",
                cost=5,
                units=1,
            )
            raise _Crash

        with pytest.raises(_Crash):
            transact(self.engine, work)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "balance"):
            return
        credit = transact(self.engine, ledger.credit_of, self.workspace)
        assert credit == self.balance - sum(self.held.values()) >= 0
        assert transact(self.engine, ledger.discrepancies) == []

    def days_agree(self, session: Session) -> None:
        since = date(1970, 1, 1)
        while checked := check_days(session, self.workspace, since):
            assert checked.wrong == []
            since = checked.following
        shown = ledger.usage(session, self.workspace, date(1970, 1, 1), since)
        query = select(LedgerEntry).where(LedgerEntry.workspace_id == self.workspace)
        ends = [entry for entry in session.exec(query) if entry.kind in ("capture", "refund")]
        captured = [name for name, end in self.ended.items() if end == "captured"]
        assert sum(day.cost for day in shown) == sum(self.charged[name] for name in captured)
        assert sum(day.units for day in shown) == sum(self.units[name] for name in captured)
        assert sum(day.requests for day in shown) == len(captured)
        assert {day.day for day in shown} == {entry.created_at.date() for entry in ends}

    def teardown(self) -> None:
        if hasattr(self, "balance"):
            self.expire()  # else its holds would expire in the next example
            transact(self.engine, self.days_agree)


def test_random_operations_retries_and_crashes_agree_with_a_reference_ledger(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(database_url)
    engine = make_engine(database_url)
    machine: type[LedgerMachine] = type("Machine", (LedgerMachine,), {"engine": engine})
    monkeypatch.setattr(ledger, "utc_now", lambda: utc_now() + machine.ahead)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25 if database_url.startswith("sqlite") else 8,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )
    engine.dispose()
