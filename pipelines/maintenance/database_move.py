"""Moves a database from SQLite to PostgreSQL, or back."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event, inspect, select, text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from db.billing.ledger import discrepancies
from db.database import make_engine, metadata
from db.migrate import upgrade

FILLED = "service"  # the table in which migrations leave a row
ROWS = 200  # in memory at a time: the largest are some 100 kB
CLOSES_S = 5.0  # PostgreSQL lists a connection for a moment after its end

Rows = Sequence[tuple[Any, ...]]


def move_database(source_url: str, target_url: str) -> str:
    """Copies each row into a database without data, while nothing else uses the source, which
    stays as it is. Returns the number of rows, in words.

    The rows are compared by digests and the ledger by its sums before the only transaction on the
    target commits, so that a move that was killed has left no row, and can be repeated. Raises
    ValueError, DatabaseError, or what the databases raise.
    """
    upgrade(source_url)
    engine = make_engine(target_url)
    try:
        with engine.begin() as target:
            _check_empty(target)
        upgrade(target_url)
        with _alone(source_url) as source, engine.begin() as target:
            if target.dialect.name == "postgresql":
                target.execute(text("SET LOCAL statement_timeout = 0"))
            _check_empty(target)
            with _without_triggers(target):
                counts = {table.name: _copy(source, target, table) for table in _tables()}
            if _wrong_accounts(source) != _wrong_accounts(target):
                raise ValueError("the balances and the sums of the ledger differ from the source's")
    finally:
        engine.dispose()
    return f"{sum(counts.values())} rows of {len(counts)} tables were copied and compared"


def _tables() -> list[Table]:
    """All tables, each after those that it refers to. Known once a database was migrated."""
    return metadata.sorted_tables


def _wrong_accounts(database: Connection) -> set[str]:
    return set(map(str, discrepancies(Session(database))))


def _check_empty(target: Connection) -> None:
    names = set(inspect(target).get_table_names()) - {"alembic_version", FILLED}
    if foreign := names - metadata.tables.keys():
        raise ValueError(f"NEW_DATABASE_URL: there is a table {min(foreign)!r} of something else")
    for name in sorted(names):
        if target.execute(select(text("1")).select_from(text(name)).limit(1)).first():
            raise ValueError(f"NEW_DATABASE_URL: there are rows already, in {name!r}")


@contextmanager
def _alone(url: str) -> Iterator[Connection]:
    """A transaction on a database that nothing else has open, nor can open in the block, if it is
    SQLite. Raises ValueError when something has."""
    in_use = "DATABASE_URL: the database is in use: stop the service, and what else has it open"
    engine = _locked_sqlite(url) if url.startswith("sqlite") else make_engine(url)
    try:
        with engine.connect() as source:
            if source.dialect.name == "postgresql":
                source.execution_options(isolation_level="REPEATABLE READ")
                _wait_until_alone(source, in_use)
                source.execute(text("SET LOCAL statement_timeout = 0"))
            yield source
    except OperationalError as error:
        raise ValueError(in_use) if "locked" in str(error.orig) else error from None
    finally:
        engine.dispose()


def _locked_sqlite(url: str) -> Engine:
    engine = create_engine(url, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def lock(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        # In this mode, chosen before the first access, a connection that only has the file open
        # is in the way too.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")

    return engine


def _wait_until_alone(source: Connection, in_use: str) -> None:
    others = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    deadline = time.monotonic() + CLOSES_S
    while source.execute(others).scalar_one():
        source.rollback()  # the list is that of the transaction
        if time.monotonic() > deadline:
            raise ValueError(in_use)
        time.sleep(0.1)


@contextmanager
def _without_triggers(target: Connection) -> Iterator[None]:
    """No trigger adds up in the block what is copied as well: the sums of days."""
    if target.dialect.name == "sqlite":
        listed = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = target.exec_driver_sql(listed).all()
        before = [f'DROP TRIGGER "{name}"' for name, _ in triggers]
        after = [sql for _, sql in triggers]
    else:
        before = [f'ALTER TABLE "{name}" DISABLE TRIGGER USER' for name in metadata.tables]
        after = [f'ALTER TABLE "{name}" ENABLE TRIGGER USER' for name in metadata.tables]
    for statement in before:
        target.exec_driver_sql(statement)
    yield
    for statement in after:
        target.exec_driver_sql(statement)


def _copy(source: Connection, target: Connection, table: Table) -> int:
    """The number of rows that have arrived. Raises ValueError when they are not those sent."""
    if table.name == FILLED:
        target.execute(table.delete())
    sent = _digest(_inserted(target, table, _rows_of(source, table)))
    if sent != _digest(_rows_of(target, table)):
        raise ValueError(f"the rows of {table.name!r} are not as they were sent")
    key = table.autoincrement_column
    if key is not None and target.dialect.name == "postgresql":
        counter = f"pg_get_serial_sequence('{table.name}', '{key.name}')"
        following = f'(SELECT coalesce(max({key.name}), 0) + 1 FROM "{table.name}")'
        target.exec_driver_sql(f"SELECT setval({counter}, {following}, false)")
    return sent[0]


def _rows_of(connection: Connection, table: Table) -> Iterator[Rows]:
    found = connection.execute(select(table).execution_options(yield_per=ROWS))
    for part in found.partitions():
        yield [tuple(map(_storable, row)) for row in part]


def _storable(value: Any) -> Any:
    """PostgreSQL has no text with the character NUL, which no route accepts any more."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _inserted(target: Connection, table: Table, parts: Iterable[Rows]) -> Iterator[Rows]:
    names = table.columns.keys()
    for part in parts:
        target.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in part])
        yield part


def _digest(parts: Iterable[Rows]) -> tuple[int, int]:
    """The number of rows, and the sum of their digests: the databases sort texts differently."""
    count = total = 0
    for part in parts:
        count += len(part)
        total += sum(int.from_bytes(sha256(repr(row).encode()).digest()) for row in part)
    return count, total
