"""Databases with the newest tables, for tests: the migrations run once a test run for SQLite, and
once for each server of PostgreSQL."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import URL, make_url

from configs.environment import sqlite_url
from configs.settings import load_settings
from db.database import Database, postgres_parameters
from db.migrate import upgrade

KINDS_OF_DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))
"""Parameters of a fixture that has a database of each kind."""


def migrate(url: str) -> None:
    """As `upgrade`; for a new SQLite file, or a database of PostgreSQL without tables, copies one
    that was migrated before."""
    target = make_url(url)
    if target.get_backend_name() == "sqlite" and target.database:
        path = Path(target.database)
        if not path.exists():
            path.write_bytes(_newest())
            return
    if target.get_backend_name() == "postgresql" and not has_tables(target):
        copy_newest(target)
        return
    upgrade(url)


def data_of_a_service(folder: Path) -> str:
    """Fills a data folder as a first start does; returns the URL of its database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_DATA", str(folder))
        patch.delenv("DATABASE_URL", raising=False)
        url = load_settings().database_url
    migrate(url)
    return url


def has_tables(database: URL) -> bool:
    """Whether there are any in a database of PostgreSQL."""
    with connected(database) as connection:
        query = "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'public')"
        found = connection.execute(query).fetchone()
    return bool(found and found[0])


def copy_newest(database: URL) -> None:
    """Replaces a database of PostgreSQL by a copy of one with the newest tables."""
    # One spelling of the driver, since the newest tables are made once for each server.
    server = database.set(drivername="postgresql", database="postgres")
    name = _newest_of(server)
    with connected(server) as connection:
        connection.execute(f'DROP DATABASE "{database.database}"')
        connection.execute(f'CREATE DATABASE "{database.database}" TEMPLATE {name}')


def connected(database: URL) -> psycopg.Connection:
    """A connection outside of transactions."""
    return psycopg.connect(**postgres_parameters(database), autocommit=True)


@contextmanager
def new_postgres(server_url: str, *, has_tables: bool = False) -> Iterator[str]:
    """The URL of a new database of PostgreSQL, dropped at the end of the block; `has_tables` gives
    it the newest tables."""
    server = make_url(server_url)
    name = f"test_{uuid4().hex}"
    template = "template1"
    if has_tables:
        template = _newest_of(server.set(drivername="postgresql", database="postgres"))
    with connected(server) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    with connected(server) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def sqlite_database(folder: Path) -> Iterator[Database]:
    """A new database in `folder`, closed at the end of the block."""
    url = sqlite_url(folder / "test.db")
    migrate(url)
    database = Database(url)
    yield database
    database.close()


@cache
def _newest() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "newest.db")
        upgrade(sqlite_url(path))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()


@cache
def _newest_of(server: URL) -> str:
    """The name of a database with the newest tables, which has no connections."""
    name = "newest"
    with connected(server) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    upgrade(server.set(database=name).render_as_string(hide_password=False))
    return name
