"""Databases with the newest tables, for tests: the migrations of SQLite run once a test run."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from sqlalchemy import make_url

from db.database import Database
from db.migrate import upgrade


def migrate(url: str) -> None:
    """As `upgrade`; for a new SQLite file, copies a database that was migrated before."""
    target = make_url(url)
    if target.get_backend_name() == "sqlite" and target.database:
        path = Path(target.database)
        if not path.exists():
            path.write_bytes(_newest())
            return
    upgrade(url)


@contextmanager
def sqlite_database(folder: Path) -> Iterator[Database]:
    """A new database in `folder`, closed at the end of the block."""
    url = f"sqlite:///{folder / 'test.db'}"
    migrate(url)
    database = Database(url)
    yield database
    database.close()


@cache
def _newest() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "newest.db")
        upgrade(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()
