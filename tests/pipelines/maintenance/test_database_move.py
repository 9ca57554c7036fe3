"""A database that the service has filled is moved to PostgreSQL, and goes on there."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    Float,
    Integer,
    LargeBinary,
    String,
    Table,
    Uuid,
    select,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from api.app import create_app
from configs.environment import sqlite_url
from configs.settings import PROJECT_DIR
from db.database import Database, make_engine, metadata
from deployments.cluster.shared_stores import open_database
from pipelines.maintenance import database_move
from pipelines.maintenance.database_move import move_database
from tests.api.local_server import local_settings, serve_app, serve_services
from tests.api.local_services import local_services
from tests.migrated import connected, migrate

pytestmark = pytest.mark.postgres

LONG = "Zoë\u2028said: \N{GRINNING FACE} 'a\\b' \"c\" \t%s {} "
KINDS: list[tuple[type[TypeEngine[Any]], Callable[[int], Any]]] = [
    (Boolean, lambda number: bool(number % 2)),
    (BigInteger, lambda number: 2**53 - number),
    (Integer, lambda number: 2**31 - number),
    (Float, lambda number: 0.1 + 0.2 * number),
    (LargeBinary, lambda number: bytes(range(256)) + bytes([number])),
    (DateTime, lambda number: datetime(2026, 3, 29, 1, 30, number, 123456, tzinfo=UTC)),
    (Date, lambda number: date(2026, 2, number)),
    (JSON, lambda number: {"z": [None, True, 1e300], "a": "\x00", "key": {"number": number}}),
    (Uuid, lambda number: UUID(int=number << 64)),
    (String, lambda number: f"{number}{LONG * 20}"),
]


def value_for(column: Column[Any], number: int) -> Any:
    """A value that the types of either database could spoil."""
    kind = getattr(column.type, "impl_instance", column.type)
    value = next(make for sql_type, make in KINDS if isinstance(kind, sql_type))(number)
    return value[: kind.length] if isinstance(kind, String) else value


def fill(connection: Connection, table: Table) -> None:
    """Adds rows with all values, and with as few as are allowed, to a table that is empty."""
    if connection.execute(select(table).limit(1)).first() is not None:
        return
    for number, few in enumerate((False, False, True), start=1):
        row = {}
        for column in table.columns:
            if column.foreign_keys:
                (reference,) = column.foreign_keys
                keys = connection.execute(select(reference.column).limit(number)).scalars().all()
                row[column.name] = keys[-1]
            elif not (few and column.nullable):
                row[column.name] = value_for(column, number)
        with connection.begin_nested() as savepoint:
            try:
                connection.execute(table.insert(), row)
            except DBAPIError as error:  # such as one row of each workspace
                assert number > 1, error
                savepoint.rollback()


def content(url: str) -> dict[str, list[str]]:
    """All rows of all tables."""
    engine = make_engine(url)
    with engine.connect() as connection:
        rows = {
            table.name: sorted(repr(tuple(row)) for row in connection.execute(select(table)))
            for table in metadata.sorted_tables
        }
    engine.dispose()
    return rows


@pytest.fixture
def other_url(postgres_url: str) -> str:
    """An empty database of PostgreSQL."""
    name = f"moved_{uuid4().hex}"
    with connected(make_url(postgres_url)) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    moved = make_url(postgres_url).set(drivername="postgresql", database=name)
    return moved.render_as_string(hide_password=False)


@pytest.fixture
def database_url(tmp_path: Path) -> str:
    """A database of SQLite."""
    return sqlite_url(tmp_path / "test.db")


def test_a_moved_service_knows_its_keys_and_goes_on(
    database_url: str, other_url: str, tmp_path: Path
) -> None:
    before = replace(local_settings(tmp_path), database_url=database_url)
    asyncio.run(open_database(before)).close()
    with serve_services(local_services(before)) as server:
        key = {"Authorization": f"Bearer {server.key}", "Idempotency-Key": "first"}
        messages = [{"role": "user", "content": LONG}]
        body = {"messages": messages, "stream": False}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=key).is_success
        login = {"email": "ann@example.com", "password": "a long password", "name": "Zoë O'Neill"}
        token = httpx.post(f"{server.url}/auth/signup", json=login).json()["token"]
        hook = {"url": "https://hooks.example.com/a", "events": ["tts.completed"]}
        assert httpx.post(f"{server.url}/webhooks", json=hook, headers=key).is_success
    engine = make_engine(database_url)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            fill(connection, table)
    engine.dispose()
    rows = content(database_url)
    assert not [name for name, lines in rows.items() if not lines], "each table has rows"

    message = move_database(database_url, other_url)
    assert message.startswith(f"{sum(map(len, rows.values()))} rows of {len(rows)} tables")
    assert content(other_url) == rows == content(database_url)

    after = replace(before, database_url=other_url)
    services = local_services(after)
    with serve_app(create_app(services)) as url:
        for credential in (server.key, token):
            answer = httpx.get(f"{url}/chats", headers={"Authorization": f"Bearer {credential}"})
            assert answer.status_code == 200
        messages.append({"role": "user", "content": "And then?"})
        key["Idempotency-Key"] = "second"
        assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=key).is_success
    services.infrastructure.database.close()
    assert len(content(other_url)["ledger_entry"]) > len(rows["ledger_entry"])


@pytest.fixture
def small_url(database_url: str) -> str:
    """A database with some rows in every table."""
    migrate(database_url)
    engine = make_engine(database_url)
    with engine.begin() as connection:
        for table in metadata.sorted_tables:
            fill(connection, table)
    engine.dispose()
    return database_url


def execute(url: str, statement: str) -> Any:
    engine = make_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return result.scalar() if result.returns_rows else None
    finally:
        engine.dispose()


def test_triggers_and_counters_work_after_a_move(small_url: str, other_url: str) -> None:
    move_database(small_url, other_url)
    last = execute(other_url, "SELECT max(id) FROM ledger_entry")
    columns = "workspace_id, operation, kind, amount, held, balance_after, service, units"
    values = "7, 'another', 'grant', 5, 0, 5, '', 0"
    now = "2026-03-29 01:30:00"
    for url in (small_url, other_url):
        execute(url, f"INSERT INTO ledger_entry ({columns}, created_at) VALUES ({values}, '{now}')")
    assert execute(other_url, "SELECT max(id) FROM ledger_entry") == last + 1
    assert execute(other_url, "SELECT amount FROM ledger_day WHERE workspace_id = 7") == 5
    assert content(other_url)["ledger_day"] == content(small_url)["ledger_day"]
    for table in ("ledger_entry", "audit_entry"):
        with pytest.raises(DBAPIError, match="append-only"):
            execute(other_url, f"DELETE FROM {table}")


def test_a_target_with_rows_or_with_other_tables_is_refused(small_url: str, other_url: str) -> None:
    execute(other_url, "CREATE TABLE pages (id INTEGER)")
    with pytest.raises(ValueError, match="table 'pages' is not of this service"):
        move_database(small_url, other_url)
    execute(other_url, "DROP TABLE pages")
    migrate(other_url)
    execute(other_url, "INSERT INTO secret_mark VALUES ('a', '')")
    before = content(other_url)
    with pytest.raises(ValueError, match="there are rows already, in 'secret_mark'"):
        move_database(small_url, other_url)
    assert content(other_url) == before


def test_a_database_that_a_service_uses_is_not_moved(small_url: str, other_url: str) -> None:
    with closing(Database(small_url)) as service:
        asyncio.run(service.ping())  # and holds its connections
        with pytest.raises(ValueError, match="^DATABASE_URL: the database is in use"):
            move_database(small_url, other_url)
    assert not content(other_url)["users"]
    move_database(small_url, other_url)


def test_a_move_that_was_killed_is_repeated(small_url: str, other_url: str) -> None:
    program = (
        "import sys, time\n"
        "from pipelines.maintenance import database_move as module\n"
        "copy = module._copy\n"
        "def slow(source, target, table):\n"
        "    if table.name == 'webhook':\n"
        "        print('half', flush=True)\n"
        "        time.sleep(600)\n"
        "    return copy(source, target, table)\n"
        "module._copy = slow\n"
        "module.move_database(*sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, small_url, other_url]
    with subprocess.Popen(command, cwd=PROJECT_DIR, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"half\n"
        process.kill()
    assert {len(rows) for name, rows in content(other_url).items() if name != "service"} == {0}
    move_database(small_url, other_url)
    assert content(other_url) == content(small_url)


def test_a_row_that_arrives_changed_undoes_the_move(
    small_url: str, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inserted = database_move._inserted

    def spoiled(target: Connection, table: Table, parts: Any) -> Any:
        yield from inserted(target, table, parts)
        if table.name == "chat":
            target.execute(text("UPDATE chat SET stored_bytes = stored_bytes + 1"))

    with monkeypatch.context() as patch:
        patch.setattr(database_move, "_inserted", spoiled)
        with pytest.raises(ValueError, match="the rows of 'chat' are not as they were sent"):
            move_database(small_url, other_url)
    assert not content(other_url)["users"]


def test_texts_with_the_character_nul_are_moved_without_it(small_url: str, other_url: str) -> None:
    execute(small_url, "UPDATE chat_message SET role = 'a' || char(0) || 'b'")
    move_database(small_url, other_url)
    role = execute(other_url, "SELECT role FROM chat_message LIMIT 1")
    assert role == "a\N{REPLACEMENT CHARACTER}b"


def test_only_sqlite_is_moved_and_only_to_postgresql(small_url: str, other_url: str) -> None:
    for urls in ((other_url, small_url), (small_url, f"{small_url}.other")):
        with pytest.raises(ValueError, match="must be of SQLite, and NEW_DATABASE_URL of Post"):
            move_database(*urls)
