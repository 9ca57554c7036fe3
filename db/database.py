"""The database: column types, connections and transactions, for SQLite and PostgreSQL alike."""

import asyncio
import logging
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Delete,
    Engine,
    Integer,
    Update,
    create_engine,
    event,
    func,
    or_,
    text,
)
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.types import TypeDecorator
from sqlmodel import Session, SQLModel, col
from sqlmodel.sql.expression import SelectOfScalar

from db.errors import DatabaseUnavailable

P = ParamSpec("P")
T = TypeVar("T")

CONNECTIONS = 8
SQLITE_READERS = 4  # calls take 1 ms of one core: more threads only compete for Python's lock
MAX_WAITING = 500  # calls; more are refused at once, instead of queueing for a hung database
PING_TIMEOUT_S = 2.0
BUSY_TIMEOUT_MS = 5_000
CHECKPOINT_TIMEOUT_MS = 100  # while a checkpoint waits for readers, nothing can write
CONNECT_TIMEOUT_S = 2
STATEMENT_TIMEOUT_MS = 10_000
# Timeout of a call. The server's own statement timeout fails when it hangs or is disconnected.
ANSWER_S = 15.0
# Closes connections to an unreachable machine, which the kernel would keep for 15 minutes.
KEEPALIVE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": round(ANSWER_S * 1000),
}

CLOCK_S = 600  # lifetime of a connection; a new one reads the server's clock again
CLOCK_STEP = timedelta(seconds=0.1)
CLOCK_WARNING_S = 1.0

logger = logging.getLogger(__name__)

metadata = SQLModel.metadata
# Gives every constraint a name that migrations can use on either database. Every table imports a
# column type of this module, so the convention is set before the first table.
metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


AUTO_INCREMENT = BigInteger().with_variant(Integer, "sqlite")
"""Type of an auto-increment key; SQLite increments only an INTEGER."""


def given_key() -> Column[int]:
    """A primary key that the database does not generate."""
    return Column(BigInteger, primary_key=True, autoincrement=False)


class UtcDateTime(TypeDecorator[datetime]):
    """A timezone-aware datetime, always UTC, also on SQLite, which stores no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone: {value!r}")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        moment: datetime = value
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


_ahead = timedelta()  # lead of the database's clock over this machine's


def iso_moment(moment: datetime) -> str:
    """Returns a moment as ISO 8601, in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_now() -> datetime:
    """Returns the time by the clock of the PostgreSQL server, once this process has connected.

    Leases and expiries are compared on every machine of a cluster. By their own clocks, two
    machines whose clocks differ by 90 s would both work on a row that one of them has leased for 30
    s.
    """
    return datetime.now(UTC) + _ahead


def read_clock(connection: Any) -> timedelta:
    """Measures the lead of the server's clock, to within half the time of its answer. `connection`
    is psycopg's."""
    asked = datetime.now(UTC)
    with connection.cursor() as cursor:
        now: datetime = cursor.execute("SELECT clock_timestamp()").fetchone()[0]
    connection.rollback()  # the driver has begun a transaction
    return now - asked - (datetime.now(UTC) - asked) / 2


def random_id() -> int:
    """Draws a positive integer of at most 53 bits, which a JavaScript number holds exactly."""
    return secrets.randbelow(2**53 - 1) + 1


class Transaction(Protocol):
    """A transaction whose statements need no mapped objects; a Session can be used as one."""

    def connection(self) -> Connection: ...


@dataclass(frozen=True, slots=True)
class _PlainTransaction:
    rows: Connection

    def connection(self) -> Connection:
        return self.rows


def change_rows(session: Transaction, statement: Update | Delete) -> int:
    """Runs the statement; returns how many rows it changed."""
    return session.connection().execute(statement).rowcount


def page_of(
    session: Session, query: SelectOfScalar[T], page: int, limit: int
) -> tuple[list[T], int]:
    """Reads one page of rows, and their total number; `page` counts from 1."""
    count = query.with_only_columns(func.count(), maintain_column_froms=True).order_by(None)
    total: int = session.connection().execute(count).scalar_one()
    return list(session.exec(query.offset((page - 1) * limit).limit(limit))), total


def is_free(lease_until: datetime | None, now: datetime) -> ColumnElement[bool]:
    """The condition that a lease column is empty or expired."""
    return or_(col(lease_until).is_(None), col(lease_until) <= now)


class BoundedThreadPool:
    """Threads for blocking calls with a timeout; while all threads hang, calls fail at once."""

    def __init__(self, threads: int, answer_s: float, name: str) -> None:
        """`threads` calls run in parallel; `answer_s` includes the wait for a thread."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._count = threads
        self._answer_s = answer_s
        self._hung: set[Future[Any]] = set()  # abandoned calls whose threads still wait

    async def run(self, work: Callable[[], T], *, extra_s: float = 0.0) -> T:
        """Runs `work` in a thread, which may take `extra_s` longer. Raises what it raises, or
        TimeoutError. Then, work that has begun may still complete; other work is cancelled."""
        if self._hung:
            self._hung = {call for call in self._hung if not call.done()}
        if len(self._hung) == self._count:
            raise TimeoutError("no call is answered")
        call = self._threads.submit(work)
        try:
            async with asyncio.timeout(self._answer_s + extra_s):
                return await asyncio.wrap_future(call)
        except TimeoutError:
            if not call.done():  # work that had not begun is cancelled, and so counts as done
                self._hung.add(call)
            raise

    def close(self) -> None:
        """Ends the threads after their calls."""
        self._threads.shutdown()


class Database:
    """Runs functions of `db` in transactions, in threads of its own."""

    def __init__(self, url: str) -> None:
        self._engine = make_engine(url)
        self._reader = self._engine.execution_options(read_only=True)
        self._ordered = self._engine.execution_options(in_order=True)
        is_sqlite = self._engine.dialect.name == "sqlite"
        readers = SQLITE_READERS if is_sqlite else CONNECTIONS
        self._readers = self._writers = BoundedThreadPool(readers, ANSWER_S, "database")
        if is_sqlite:
            # One connection writes at a time; more would poll for its lock, in no order.
            self._writers = BoundedThreadPool(1, ANSWER_S, "database-writer")
        self._calls = 0

    async def run(
        self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs `work(session, …)` in one transaction, which commits when it returns. Raises
        DatabaseUnavailable, sqlalchemy.exc.IntegrityError, or what `work` raises."""
        call = partial(_transact, self._engine, lambda session: work(session, *args, **kwargs))
        return await self._in_thread(call, self._writers)

    async def read(
        self, work: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs read-only work as `run` does; on SQLite it does not wait for writers."""
        call = partial(_transact, self._reader, lambda session: work(session, *args, **kwargs))
        return await self._in_thread(call, self._readers)

    async def get(self, table: type[T], key: Any) -> T | None:
        """Reads the row of that primary key; None when there is none. Raises as `run`."""
        return await self.read(lambda session: session.get(table, key))

    async def run_plain(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs work as `run` does, but without mapped objects: faster, for every request."""
        call = partial(_transact_plain, self._engine, lambda rows: work(rows, *args, **kwargs))
        return await self._in_thread(call, self._writers)

    async def run_in_order(
        self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs work as `run_plain` does, but on SQLite a power cut may undo it. A later `run` makes
        it durable, and the end of the process does not undo it. It is for writes that matter only
        together with later ones."""
        call = partial(_transact_plain, self._ordered, lambda rows: work(rows, *args, **kwargs))
        return await self._in_thread(call, self._writers)

    async def ping(self) -> None:
        """Checks that the database answers. Raises DatabaseUnavailable."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self.read(lambda session: session.connection().scalar(text("SELECT 1")))
        except TimeoutError:
            raise DatabaseUnavailable("the database does not answer in time") from None

    async def forget_deleted(self) -> None:
        """Truncates SQLite's write-ahead log, which contains deleted data. If readers or a full
        disk prevent that, it succeeds later, since housekeeping calls this again."""
        if self._engine.dialect.name == "sqlite":
            try:
                if not await self._in_thread(partial(_checkpoint, self._engine), self._writers):
                    logger.warning("log_of_writes_kept", extra={"reason": "it is being read"})
            except (DatabaseUnavailable, OperationalError, sqlite3.OperationalError) as error:
                logger.warning("log_of_writes_kept", extra={"reason": str(error)})

    async def _in_thread(self, work: Callable[[], T], threads: BoundedThreadPool) -> T:
        if self._calls >= CONNECTIONS + MAX_WAITING:
            raise DatabaseUnavailable("too many requests wait for the database")
        self._calls += 1
        try:
            return await threads.run(work)
        except TimeoutError:
            raise DatabaseUnavailable("the database does not answer in time") from None
        finally:
            self._calls -= 1

    def close(self) -> None:
        """Ends the threads and closes the connections."""
        self._readers.close()
        self._writers.close()
        self._engine.dispose()


def _checkpoint(engine: Engine) -> bool:
    """Truncates the write-ahead log; False if a reader prevents it."""
    connection = engine.raw_connection()  # outside a transaction
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout={CHECKPOINT_TIMEOUT_MS}")
        is_busy, *_ = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy
    finally:
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        connection.close()


def _transact(engine: Engine, work: Callable[[Session], T]) -> T:
    with _connection_errors(), Session(engine, expire_on_commit=False) as session, session.begin():
        return work(session)


def _transact_plain(engine: Engine, work: Callable[[Transaction], T]) -> T:
    with _connection_errors(), engine.begin() as connection:
        return work(_PlainTransaction(connection))


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Raises DatabaseUnavailable in place of the driver's errors for an unreachable server."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        is_locked = "database is locked" in str(error)
        problem = "is locked by another process" if is_locked else "does not answer"
        raise DatabaseUnavailable(f"the database {problem}") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise DatabaseUnavailable("the database closed the connection") from error
        raise


def make_engine(
    url: str, *, connections: int = CONNECTIONS, busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> Engine:
    """Makes an engine with the settings that this project needs on either database. Use at most
    `connections` threads: the pool does not serve waiting threads in order."""
    target = make_url(url)
    if target.get_backend_name() == "sqlite":
        return _sqlite_engine(target, connections, busy_timeout_ms)
    engine = create_engine(
        postgres_url(target),
        hide_parameters=True,  # errors are logged; parameters contain texts and password hashes
        pool_size=connections,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT_S,
        pool_pre_ping=True,
        pool_recycle=CLOCK_S,
        connect_args={
            **KEEPALIVE,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "options": f"-c timezone=utc -c statement_timeout={STATEMENT_TIMEOUT_MS}",
        },
    )

    @event.listens_for(engine, "connect")
    def follow_clock(connection: Any, _record: object) -> None:
        global _ahead
        lead = read_clock(connection)
        if abs(lead - _ahead) > CLOCK_STEP:  # more than the jitter of the measurement
            _ahead = lead
        if abs(seconds := _ahead.total_seconds()) > CLOCK_WARNING_S:
            logger.warning("clock_differs", extra={"database_ahead_s": round(seconds, 3)})

    return engine


def postgres_url(url: URL) -> URL:
    """Sets the driver of a URL to the one that this project uses, psycopg 3."""
    return url.set(drivername="postgresql+psycopg")


def postgres_parameters(url: URL) -> dict[str, Any]:
    """Parameters of a connection to `url`, as PostgreSQL's library names them. The library cannot
    parse every SQLAlchemy URL."""
    target = postgres_url(url)
    _, parameters = target.get_dialect()().create_connect_args(target)
    return dict(parameters)


def _sqlite_engine(url: URL, connections: int, busy_timeout_ms: int) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_use_lifo=True,  # the last used connection has the newest pages in its cache
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # Python's driver would begin transactions implicitly, and too late for DDL.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout={busy_timeout_ms}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",  # overwrites deleted data in free pages
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A deferred transaction that reads, then writes, fails at once after a concurrent write.
        options = connection.get_execution_options()
        if options.get("read_only"):
            connection.exec_driver_sql("BEGIN")
            return
        # With NORMAL a commit does not sync the log to the disk; the next commit with FULL does.
        synchronous = "NORMAL" if options.get("in_order") else "FULL"
        if connection.info.get("synchronous", "FULL") != synchronous:
            connection.exec_driver_sql(f"PRAGMA synchronous={synchronous}")
            connection.info["synchronous"] = synchronous
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine
