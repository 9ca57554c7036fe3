"""Moves a database from SQLite to PostgreSQL."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Table, create_engine, event, inspect, select, text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from db.billing.ledger import discrepancies
from db.database import make_engine, metadata
from db.migrate import upgrade

FILLED = "service"  # the table in which migrations leave a row
ROWS = 200  # rows in memory at a time, the largest of some 100 kB

Rows = Sequence[tuple[Any, ...]]


def move_database(source_url: str, target_url: str) -> str:
    """Copy each row into a database without data, while nothing else uses the source, which stays
    unchanged; return a sentence with the number of rows. Digests of the rows and sums of the ledger
    are compared before the only transaction on the target commits: a killed move has left no row.
    Raises ValueError, DatabaseError, or the databases' errors."""
    if not source_url.startswith("sqlite") or target_url.startswith("sqlite"):
        raise ValueError("DATABASE_URL must be of SQLite, and NEW_DATABASE_URL of PostgreSQL")
    upgrade(source_url)
    engine = make_engine(target_url)
    try:
        with engine.begin() as target:
            _check_empty(target)
        upgrade(target_url)
        with _alone(source_url) as source, engine.begin() as target:
            target.execute(text("SET LOCAL statement_timeout = 0"))
            _check_empty(target)
            with _without_triggers(target):  # the tables are known since they were migrated
                counts = [_copy(source, target, table) for table in metadata.sorted_tables]
            if _wrong_accounts(source) != _wrong_accounts(target):
                raise ValueError("the balances and the sums of the ledger differ from the source's")
    finally:
        engine.dispose()
    return f"{sum(counts)} rows of {len(counts)} tables were copied and compared"


def _wrong_accounts(database: Connection) -> set[str]:
    return set(map(str, discrepancies(Session(database))))


def _check_empty(target: Connection) -> None:
    names = set(inspect(target).get_table_names()) - {"alembic_version", FILLED}
    if foreign := names - metadata.tables.keys():
        raise ValueError(f"NEW_DATABASE_URL: table {min(foreign)!r} is not of this service")
    for name in sorted(names):
        if target.execute(select(text("1")).select_from(text(name)).limit(1)).first():
            raise ValueError(f"NEW_DATABASE_URL: there are rows already, in {name!r}")


@contextmanager
def _alone(url: str) -> Iterator[Connection]:
    """Begin a transaction on a database that nothing else has open. Raises ValueError."""
    engine = create_engine(url, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def lock(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        # If this mode is set before the first access, even a connection that only has the file
        # open prevents the lock.
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")

    try:
        with engine.connect() as source:
            yield source
    except OperationalError as error:
        if "database is locked" not in str(error.orig):
            raise
        raise ValueError("DATABASE_URL: the database is in use: stop the service") from None
    finally:
        engine.dispose()


@contextmanager
def _without_triggers(target: Connection) -> Iterator[None]:
    """Disable triggers during the block: they would add up sums of days, which are copied too."""
    for change in ("DISABLE", "ENABLE"):
        for name in metadata.tables:
            target.exec_driver_sql(f'ALTER TABLE "{name}" {change} TRIGGER USER')
        if change == "DISABLE":
            yield


def _copy(source: Connection, target: Connection, table: Table) -> int:
    """Copy rows; return how many have arrived. Raises ValueError if they differ from those sent."""
    if table.name == FILLED:
        target.execute(table.delete())
    sent = _digest(_inserted(target, table, _rows_of(source, table)))
    if sent != _digest(_rows_of(target, table)):
        raise ValueError(f"the rows of {table.name!r} are not as they were sent")
    key = table.autoincrement_column
    if key is not None:
        counter = f"pg_get_serial_sequence('{table.name}', '{key.name}')"
        following = f'(SELECT coalesce(max({key.name}), 0) + 1 FROM "{table.name}")'
        target.exec_driver_sql(f"SELECT setval({counter}, {following}, false)")
    return sent[0]


def _rows_of(connection: Connection, table: Table) -> Iterator[Rows]:
    result = connection.execute(select(table).execution_options(yield_per=ROWS))
    for part in result.partitions():
        yield [tuple(map(_storable, row)) for row in part]


def _storable(value: Any) -> Any:
    """Replace the character NUL, which PostgreSQL cannot store and no route accepts any more."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _inserted(target: Connection, table: Table, parts: Iterable[Rows]) -> Iterator[Rows]:
    names = table.columns.keys()
    for part in parts:
        target.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in part])
        yield part


def _digest(parts: Iterable[Rows]) -> tuple[int, int]:
    """Counts rows and sums their digests, since the databases sort texts differently."""
    count = total = 0
    for part in parts:
        count += len(part)
        total += sum(int.from_bytes(sha256(repr(row).encode()).digest()) for row in part)
    return count, total
