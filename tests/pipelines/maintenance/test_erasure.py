"""Erasure of accounts on PostgreSQL, beside charges of the same workspace."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.accounts import User, delete_user
from db.billing import ledger
from db.database import Database, utc_now
from db.webhooks import NewEvent, Webhook
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.maintenance import erasure
from pipelines.maintenance.erasure import erase_rows
from tests.db.test_chats import add_workspace
from tests.db.test_webhooks import plain
from tests.patience import PATIENCE_S, until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("database_url", ["postgresql"], indirect=True),
]

UNFINISHED = "voice-unfinished"
WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


class Account:
    """A workspace with a webhook, an unfinished voice and a charge."""

    def __init__(self, database: Database, workspace_id: int, user_id: int) -> None:
        self.database = database
        self.billing = Billing(database, load_yaml(PlansConfig, "plans").prices, plain)
        self.workspace_id = workspace_id
        self.user_id = user_id

    async def capture(self) -> int:
        charge = await self.billing.hold(self.workspace_id, "tts", 100, Operation())
        return await charge.capture(100, NewEvent("tts.completed", {}))

    async def erase(self) -> None:
        await self.database.run(erase_rows, self.workspace_id, self.user_id, "operator")

    async def some_transaction_waits(self) -> bool:
        waiting = await self.database.read(lambda session: session.connection().scalar(WAITING))
        return bool(waiting)


@pytest.fixture
async def account(database: Database, monkeypatch: pytest.MonkeyPatch) -> Account:
    workspace_id = await add_workspace(database)
    await database.run(ledger.open_account, workspace_id, 5_000_000)

    def add_rows(session: Session) -> int:
        url, events = "https://hooks.example.com/", ["tts.completed"]
        session.add(Webhook(id=uuid4(), workspace_id=workspace_id, url=url, events=events))
        assert ledger.hold(
            session,
            workspace_id=workspace_id,
            operation=UNFINISHED,
            service="voice",
            amount=1_000_000,
            expires_at=utc_now(),
        )
        return session.exec(select(User.id)).one()

    user_id = await database.run(add_rows)
    monkeypatch.setattr(erasure, "unfinished_operations", lambda *_: [UNFINISHED])
    return Account(database, workspace_id, user_id)


class Pause:
    """Stops a function after its work, within its transaction, until `go` is set."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self._function = function

    def __call__(self, *values: Any, **named: Any) -> Any:
        result = self._function(*values, **named)
        self.reached.set()
        assert self.go.wait(PATIENCE_S)
        return result


async def until_one_waits(account: Account, running: "asyncio.Task[Any]") -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not running.done() and not await account.some_transaction_waits():
            await asyncio.sleep(0.02)


async def test_an_erasure_that_meets_a_charge_with_its_event_waits_for_it(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(ledger.capture)  # the account is locked
    monkeypatch.setattr(ledger, "capture", pause)
    capturing = asyncio.create_task(account.capture())
    await until(pause.reached.is_set)
    erasing = asyncio.create_task(account.erase())
    await until_one_waits(account, erasing)
    pause.go.set()
    assert await capturing == 1500
    await erasing
    assert await account.database.read(ledger.discrepancies) == []


async def test_a_charge_with_its_event_that_meets_an_erasure_waits_for_it(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = Pause(delete_user)  # the workspace is locked
    monkeypatch.setattr(erasure, "delete_user", pause)
    erasing = asyncio.create_task(account.erase())
    await until(pause.reached.is_set)
    capturing = asyncio.create_task(account.capture())
    await until_one_waits(account, capturing)
    pause.go.set()
    await erasing
    assert await capturing == 1500
    assert await account.database.read(ledger.discrepancies) == []
