"""Migrations create the tables that the code expects, on both databases."""

import ast
import multiprocessing
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlmodel import Session, col, select

from db.billing import ledger
from db.billing.ledger_check import check_days
from db.chats import CHAT_BYTES, MESSAGE_BYTES
from db.database import make_engine, metadata, utc_now
from db.migrate import MIGRATIONS, new_migration, upgrade
from db.service import service_id
from db.voices.voices import VoiceShare
from tests.db.billing.ledger_work import transact
from tests.patience import PATIENCE_S


def test_migrations_create_the_tables_of_the_models(database_url: str) -> None:
    upgrade(database_url)
    engine = make_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_new_migration_has_the_next_number_and_adds_the_missing_columns(tmp_path: Path) -> None:
    migrations = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, migrations)
    newest = max(path.name[:4] for path in (migrations / "versions").glob("0*.py"))
    metadata.tables["voice"].append_column(sa.Column("nickname", sa.String(16)))
    try:
        path = new_migration("Voices have a nickname", migrations)
    finally:
        metadata.tables["voice"]._columns.remove(metadata.tables["voice"].c.nickname)
    assert path.name == f"{int(newest) + 1:04}_voices_have_a_nickname.py"
    assert f"down_revision = {newest!r}" in path.read_text()
    assert "batch_op.add_column(sa.Column('nickname'" in path.read_text()


def test_a_second_upgrade_changes_nothing(database_url: str) -> None:
    upgrade(database_url)
    upgrade(database_url)


def test_concurrent_upgrades_of_one_database_all_succeed(database_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    starting = [spawn.Process(target=upgrade, args=(database_url,)) for _ in range(3)]
    for process in starting:
        process.start()
    for process in starting:
        process.join(3 * PATIENCE_S)
    assert [process.exitcode for process in starting] == [0, 0, 0]


@pytest.mark.parametrize("revision", ["0005", "0015", "0016"])
def test_migrations_sum_existing_ledger_entries_by_day(
    revision: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(database_url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = database_url
    engine = make_engine(database_url)
    for number, moment in enumerate(
        datetime(2028, 2, 29, 23, 59, 59, 999_999, UTC) + timedelta(seconds=s) for s in (0, 1, 99)
    ):
        monkeypatch.setattr(ledger, "utc_now", lambda moment=moment: moment)
        for workspace in (1, 2):
            if number == 0:
                transact(engine, ledger.open_account, workspace, 1000)
            operation = f"{workspace}-{number}"
            transact(
                engine,
                ledger.hold,
                workspace_id=workspace,
                operation=operation,
                service="tts",
                amount=50,
                expires_at=moment,
                key_id=100 + number,
            )
            transact(
                engine,
                ledger.capture,
                workspace_id=workspace,
                operation=operation,
                service="tts",
                cost=10,
                units=7,
            )
    transact(engine, ledger.refund, 2, "2-1")
    command.downgrade(config, revision)
    upgrade(database_url)
    assert transact(engine, ledger.discrepancies) == []
    for workspace in (1, 2):
        checked = transact(engine, check_days, workspace, date(1970, 1, 1))
        assert checked is not None and checked.wrong == []
    days = transact(engine, ledger.usage, 2, date(2028, 1, 1), date(2028, 12, 31))
    assert [(f"{day.day}", day.units, day.requests, day.cost) for day in days] == [
        ("2028-02-29", 7, 1, 10),
        ("2028-03-01", 7, 1, 10),
    ]
    by_key = transact(engine, ledger.usage, 2, date(2028, 1, 1), date(2028, 12, 31), True)
    kept = revision == "0016"  # the columns
    found = [(day.key_id, day.requests) for day in by_key]
    assert found == ([(100, 1), (101, 0), (102, 1)] if kept else [(0, 1), (0, 1)])
    engine.dispose()


def test_migration_0012_counts_the_bytes_of_existing_chats(database_url: str) -> None:
    upgrade(database_url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = database_url
    command.downgrade(config, "0011")
    engine = make_engine(database_url)
    rows = (
        "INSERT INTO users (id, email, password_hash, name, company, created_at, updated_at) "
        "VALUES (1, 'a', '', '', '', :now, :now)",
        "INSERT INTO workspace (id, owner_id, name, plan, retention, created_at) "
        "VALUES (2, 1, '', 'free', 'standard', :now)",
        "INSERT INTO chat (id, workspace_id, title, created_at, updated_at) "
        "VALUES (:chat, 2, '', :now, :now)",
        "INSERT INTO chat_message (chat_id, position, role, content, extra, created_at) "
        "VALUES (:chat, 0, 'user', 'hello', '{}', :now)",
        "INSERT INTO chat_message (chat_id, position, role, content, extra, created_at) "
        "VALUES (:chat, 1, 'assistant', 'hi', '{}', :now)",
    )
    with engine.begin() as connection:
        for row in rows:
            values = {"chat": "0" * 31 + "1", "now": "2026-11-01 00:00:00"}
            connection.execute(sa.text(row), values)
    upgrade(database_url)
    with engine.connect() as connection:
        stored = connection.scalar(sa.text("SELECT stored_bytes FROM chat"))
    assert stored == CHAT_BYTES + 2 * MESSAGE_BYTES + len("hellohi")
    engine.dispose()


def test_migration_0022_ends_open_offers_by_e_mail_alone(database_url: str) -> None:
    upgrade(database_url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = database_url
    engine = make_engine(database_url)
    voice = {"id": UUID(int=1), "workspace_id": 2, "name": "", "name_key": "", "language": "en"}
    voice |= {"gender": "neutral", "operation": "", "estimated_completion": utc_now()}
    users, workspaces = metadata.tables["users"], metadata.tables["workspace"]
    with engine.begin() as connection:
        connection.execute(users.insert().values(id=1, email="a", password_hash=""))
        connection.execute(workspaces.insert().values(id=2, owner_id=1, name="", plan="free"))
        connection.execute(metadata.tables["voice"].insert().values(**voice))
    command.downgrade(config, "0021")
    shares = metadata.tables["voice_share"]
    with engine.begin() as connection:
        for number, accepted_at in enumerate((None, utc_now())):
            row = {
                "id": UUID(int=number),
                "voice_id": UUID(int=1),
                "email": f"{number}@example.com",
            }
            row |= {"created_at": utc_now(), "accepted_at": accepted_at}
            connection.execute(shares.insert().values(**row))
    upgrade(database_url)
    with Session(engine) as session:
        kept = session.exec(select(VoiceShare).order_by(col(VoiceShare.email))).all()
    assert [share.expires_at is not None for share in kept] == [True, False]
    assert kept[0].expires_at is not None and kept[0].expires_at <= utc_now()
    engine.dispose()


def test_an_upgrade_keeps_the_service_id_of_the_database(database_url: str) -> None:
    engine = make_engine(database_url)
    names = set()
    for _ in range(2):
        upgrade(database_url)
        names.add(transact(engine, service_id))
    engine.dispose()
    (name,) = names
    assert len(name) == 16


def expansion_problems(upgrade: ast.AST) -> list[str]:
    """What the previous release could not live with: it serves on while an upgrade rolls."""
    found = []
    for call in (node for node in ast.walk(upgrade) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func).rpartition(".")[2]
        given = {one.arg: ast.unparse(one.value) for one in call.keywords}
        if name.startswith(("drop_column", "drop_table", "rename_", "create_check")):
            found.append(f"{name}: in the release after the one that no longer uses it")
        elif name == "alter_column" and given.keys() & {"new_column_name", "type_", "nullable"}:
            found.append(f"{name} changes what the previous release expects")
        elif name == "add_column" and "Column" in (column := ast.unparse(call.args[1])):
            if "nullable=False" in column and "server_default" not in column:
                found.append(f"{name} without server_default: the previous release cannot insert")
    return found


def test_every_migration_expands_so_that_the_previous_release_serves_on() -> None:
    for file in sorted((MIGRATIONS / "versions").glob("*.py")):
        (upgrade,) = [
            node
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.FunctionDef) and node.name == "upgrade"
        ]
        contracts = file.stem.split("_", 1)[1].startswith("contract_")
        assert contracts or expansion_problems(upgrade) == [], file.name


@pytest.mark.parametrize(
    "code",
    [
        'op.drop_column("chat", "title")',
        'op.rename_table("chat", "chats")',
        'op.alter_column("chat", "title", nullable=False)',
        'op.add_column("chat", sa.Column("size", sa.Integer(), nullable=False))',
    ],
)
def test_what_does_not_expand_is_found(code: str) -> None:
    assert len(expansion_problems(ast.parse(code))) == 1
