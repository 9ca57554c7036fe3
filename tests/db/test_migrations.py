"""Migrations create the tables that the code expects, on both databases."""

import ast
import multiprocessing
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from db.database import make_engine, metadata
from db.errors import DatabaseError
from db.migrate import MIGRATIONS, _config, new_migration, upgrade
from db.service import service_id
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


def call_revision(url: str, revision: str) -> None:
    """Makes the tables of version 0.9.0, and calls them by another revision."""
    upgrade(url, "0024")
    engine = make_engine(url)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE alembic_version SET version_num = :at"), {"at": revision}
        )
    engine.dispose()


def test_the_tables_of_0_9_0_are_migrated(database_url: str) -> None:
    upgrade(database_url, "0024")
    engine = make_engine(database_url)
    with engine.begin() as connection:
        users = sa.Table("users", sa.MetaData(), autoload_with=connection)
        row = {"id": 1, "email": "a", "password_hash": "", "name": "a", "company": ""}
        row |= dict.fromkeys(("created_at", "updated_at"), datetime.now(UTC))
        connection.execute(users.insert().values(row))
    upgrade(database_url)
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT email FROM users")) == "a"
    engine.dispose()


def test_a_downgrade_leaves_no_file_that_the_release_before_does_not_know(
    database_url: str,
) -> None:
    upgrade(database_url)
    engine = make_engine(database_url)
    row = {"workspace_id": 1, "media_type": "", "size": 1, "created_at": datetime.now(UTC)}
    with engine.begin() as connection:
        files = sa.Table("stored_file", sa.MetaData(), autoload_with=connection)
        for kind in ("history", "voice"):
            connection.execute(files.insert().values(id=kind, kind=kind, **row))
    command.downgrade(_config(database_url), "0026")
    with engine.connect() as connection:
        kept = connection.scalars(sa.text("SELECT id FROM stored_file WHERE expires_at IS NULL"))
        assert kept.all() == ["voice"]
    engine.dispose()


@pytest.mark.parametrize("revision", ["0001", "0012", "0023"])
def test_tables_before_0_9_0_are_refused_with_the_way_on(revision: str, database_url: str) -> None:
    call_revision(database_url, revision)
    with pytest.raises(DatabaseError) as refused:
        upgrade(database_url)
    assert str(refused.value) == (
        f"DATABASE_URL: the tables are of a version before 0.9.0 (revision {revision}): "
        "start version 0.9.0 once, which migrates them, and then this version"
    )


def test_tables_of_a_newer_release_are_refused(database_url: str) -> None:
    call_revision(database_url, "9999")
    with pytest.raises(DatabaseError, match="of a newer one"):
        upgrade(database_url)


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
