"""Housekeeping deletes data after its retention period, and nothing else; both databases."""

from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from sqlmodel import Session, col, select, update

from configs.load import load_yaml
from configs.schema.platform import RetentionConfig
from db.accounts import ApiKey, Workspace, change_row
from db.billing.ledger import credit_of, hold, open_account
from db.billing.tables import Account, CreditHold
from db.chats import Chat
from db.client_secrets import ClientSecret
from db.database import Database, utc_now
from db.errors import DatabaseUnavailable
from db.idempotency import IdempotentAnswer
from db.webhooks import Delivery, Event, NewEvent, Webhook, add_event
from pipelines.maintenance import housekeeping
from pipelines.maintenance.housekeeping import Housekeeper
from pipelines.storage.files import Files
from telemetry.metrics import REGISTRY
from tests.db.rows import execute, rows
from tests.db.test_chats import add_workspace
from tests.db.test_webhooks import plain
from tests.pipelines.storage.on_disk import files_in

CREDIT = 1_000


@pytest.fixture
def files(database: Database, tmp_path: Path) -> Files:
    return files_in(tmp_path, database)


@pytest.fixture
def housekeeper(database: Database, files: Files) -> Housekeeper:
    return Housekeeper(
        database, files, RetentionConfig(chat_days=90, event_days=30, delivery_days=90)
    )


async def _workspace(database: Database) -> int:
    workspace_id = await add_workspace(database, f"{uuid4()}@example.com")
    await database.run(open_account, workspace_id, CREDIT)
    return workspace_id


async def _event(database: Database, workspace_id: int) -> str:
    """An event with a pending delivery to one webhook."""
    event = NewEvent("tts.completed", {"text": "pelican"})
    url = "https://a.example"
    hook = Webhook(id=uuid4(), workspace_id=workspace_id, url=url, events=[event.kind])
    await database.run(Session.add, hook)
    event_id = await database.run(add_event, workspace_id, event, plain)
    assert event_id is not None
    return event_id


async def _make_older(database: Database, event_id: str, days: int) -> None:
    then = utc_now() - timedelta(days=days)
    event = update(Event).where(col(Event.id) == event_id)
    await execute(database, event.values(created_at=then))


async def _body(database: Database, event_id: str) -> str | None:
    body: str | None
    [body] = await rows(database, select(Event.body).where(Event.id == event_id))
    return body


async def _settle(database: Database, event_id: str) -> None:
    delivery = update(Delivery).where(col(Delivery.event_id) == event_id)
    await execute(database, delivery.values(status="delivered"))


def test_the_shipped_retention_config_is_valid() -> None:
    assert load_yaml(RetentionConfig, "retention").event_days == 30


async def test_housekeeping_of_an_empty_database_changes_nothing(housekeeper: Housekeeper) -> None:
    assert set((await housekeeper.run_once()).values()) == {0}


async def test_expired_holds_are_released(housekeeper: Housekeeper, database: Database) -> None:
    workspace_id = await _workspace(database)
    now = utc_now()
    await database.run(
        hold,
        workspace_id=workspace_id,
        operation="op",
        service="tts",
        amount=600,
        expires_at=now + timedelta(minutes=1),
    )
    assert (await housekeeper.run_once())["holds"] == 0

    await execute(database, update(CreditHold).values(expires_at=now))
    assert (await housekeeper.run_once())["holds"] == 1
    assert await database.read(credit_of, workspace_id) == CREDIT


async def test_event_bodies_are_deleted_after_the_retention_period(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    old, young = await _event(database, workspace_id), await _event(database, workspace_id)
    await _make_older(database, old, days=31)
    assert (await housekeeper.run_once())["old_events"] == 1
    assert await _body(database, old) is None
    assert "pelican" in (await _body(database, young) or "")


async def test_event_bodies_of_a_zero_retention_workspace_are_deleted_once_delivered(
    housekeeper: Housekeeper, database: Database
) -> None:
    zero, normal = await _workspace(database), await _workspace(database)
    await database.run(change_row, Workspace, zero, retention="zero")
    waiting, settled = await _event(database, zero), await _event(database, zero)
    kept = await _event(database, normal)
    for event_id in (settled, kept):
        await _settle(database, event_id)
    assert (await housekeeper.run_once())["settled_events"] == 1
    assert await _body(database, settled) is None
    assert await _body(database, waiting) is not None
    assert await _body(database, kept) is not None


async def test_deliveries_are_deleted_after_the_retention_period(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    old, young = await _event(database, workspace_id), await _event(database, workspace_id)
    await _make_older(database, old, days=91)
    await _make_older(database, young, days=89)
    assert (await housekeeper.run_once())["deliveries"] == 1
    assert set(await rows(database, select(Delivery.event_id))) == {young}


async def test_deliveries_of_dead_workers_to_inactive_webhooks_are_cancelled(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    await database.run(change_row, Workspace, workspace_id, retention="zero")
    event_id = await _event(database, workspace_id)
    dead = {"lease": "of the dead", "lease_until": utc_now() - timedelta(seconds=1)}
    await execute(database, update(Delivery).values(dead))
    await execute(database, update(Webhook).values(status="inactive"))
    await housekeeper.run_once()
    assert await rows(database, select(Delivery.status)) == ["cancelled"]
    assert await _body(database, event_id) is None


async def test_an_expired_old_webhook_secret_is_deleted(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    for _ in range(2):
        await _event(database, workspace_id)

    def rotate(session: Session) -> None:
        for hours, webhook in zip((-1, 1), session.exec(select(Webhook)), strict=True):
            webhook.secret, webhook.old_secret = b"new", b"old"
            webhook.old_secret_until = utc_now() + timedelta(hours=hours)

    await database.run(rotate)
    assert (await housekeeper.run_once())["old_secrets"] == 1
    secrets = await rows(database, select(Webhook.old_secret))
    assert sorted(secrets, key=bool) == [None, b"old"]


async def test_a_revoked_api_key_is_deleted_after_the_retention_period(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    for name, days in (("old", 91), ("young", 89), ("live", None)):
        revoked_at = None if days is None else utc_now() - timedelta(days=days)
        key = ApiKey(
            workspace_id=workspace_id,
            name=name,
            digest=name.encode(),
            prefix="sk_",
            scopes=[],
            revoked_at=revoked_at,
        )
        await database.run(Session.add, key)
    assert (await housekeeper.run_once())["revoked_keys"] == 1
    assert set(await rows(database, select(ApiKey.name))) == {"young", "live"}


async def test_expired_client_secrets_are_deleted(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    for name, minutes in ((b"old", -1), (b"live", 1)):
        secret = ClientSecret(
            digest=name,
            workspace_id=workspace_id,
            scopes=[],
            configuration=b"{}",
            expires_at=utc_now() + timedelta(minutes=minutes),
        )
        await database.run(Session.add, secret)
    assert (await housekeeper.run_once())["client_secrets"] == 1
    assert await rows(database, select(ClientSecret.digest)) == [b"live"]


def test_the_query_for_event_bodies_of_zero_retention_workspaces_uses_an_index(
    database: Database, database_url: str
) -> None:
    if not database_url.startswith("sqlite"):
        pytest.skip("PostgreSQL reads a small table whole")
    statement = (
        "EXPLAIN QUERY PLAN SELECT event.id FROM event JOIN workspace ON workspace.id = "
        "event.workspace_id WHERE workspace.retention = 'zero' AND event.body IS NOT NULL"
    )
    with database._engine.connect() as connection:
        plan = " ".join(row[3] for row in connection.exec_driver_sql(statement))
    assert "ix_event_with_body" in plan, plan


@pytest.mark.parametrize("days", [90, None])
async def test_unused_chats_are_deleted_after_the_retention_period(
    database: Database, files: Files, days: int | None
) -> None:
    workspace_id = await _workspace(database)
    old, young = uuid4(), uuid4()
    for chat_id, age in ((old, 91), (young, 89)):
        moment = utc_now() - timedelta(days=age)
        chat = Chat(id=chat_id, workspace_id=workspace_id, title="", updated_at=moment)
        await database.run(Session.add, chat)
    await Housekeeper(
        database, files, RetentionConfig(chat_days=days, event_days=30, delivery_days=90)
    ).run_once()
    left = set(await rows(database, select(Chat.id)))
    assert left == ({young} if days else {old, young})


async def test_expired_idempotent_responses_and_files_are_deleted(
    housekeeper: Housekeeper, database: Database, files: Files, tmp_path: Path
) -> None:
    workspace_id = await _workspace(database)
    kept = await files.put(workspace_id, "speech", "audio/mpeg", b"a", 3600)
    await files.put(workspace_id, "speech", "audio/mpeg", b"a", -1)
    for key, hours in (("old", -1), ("young", 1)):
        answer = IdempotentAnswer(
            workspace_id=workspace_id,
            path="/",
            key=key,
            headers=[],
            expires_at=utc_now() + timedelta(hours=hours),
        )
        await database.run(Session.add, answer)
    done = await housekeeper.run_once()
    assert (done["files"], done["answers"]) == (1, 1)
    assert [path.name for path in (tmp_path / "files").rglob("file_*")] == [kept]


async def test_a_failed_housekeeping_task_does_not_stop_the_others(
    housekeeper: Housekeeper, database: Database, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise DatabaseUnavailable("down")

    monkeypatch.setattr(housekeeping, "release_expired", fail)
    await files.put(await _workspace(database), "speech", "audio/mpeg", b"a", -1)
    done = await housekeeper.run_once()
    assert (done["holds"], done["files"]) == (0, 1)


async def test_deleted_event_bodies_are_not_in_the_files_of_sqlite(
    housekeeper: Housekeeper, database: Database, database_url: str, tmp_path: Path
) -> None:
    if not database_url.startswith("sqlite"):
        pytest.skip("files of SQLite")
    workspace_id = await _workspace(database)
    await database.run(change_row, Workspace, workspace_id, retention="zero")
    await _settle(database, await _event(database, workspace_id))

    def found() -> list[str]:
        return [path.name for path in tmp_path.glob("*db*") if b"pelican" in path.read_bytes()]

    assert found() != []
    assert (await housekeeper.run_once())["settled_events"] == 1
    assert found() == []


async def test_balances_that_differ_from_the_ledger_are_counted_in_a_metric(
    housekeeper: Housekeeper, database: Database
) -> None:
    workspace_id = await _workspace(database)
    await _workspace(database)
    account = update(Account).where(col(Account.workspace_id) == workspace_id)
    await execute(database, account.values(balance=CREDIT + 1))
    await housekeeper.run_once()
    assert REGISTRY.get_sample_value("antiphon_ledger_mismatches") == 1
