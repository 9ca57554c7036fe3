"""Runs migrations on `config.attributes["url"]`, one process at a time, in one transaction."""

import importlib
import pkgutil
from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import text
from sqlmodel.sql.sqltypes import AutoString

import db
from db.database import UtcDateTime, make_engine, metadata

LOCK = 0x616E7469  # any number, the same for every process
PATIENCE_MS = 60_000


def plain_type(kind: str, item: Any, _context: AutogenContext) -> str | Literal[False]:
    """Writes our own column types as the database types that they stand for."""
    if kind != "type":
        return False
    if isinstance(item, AutoString):
        return f"sa.String(length={item.length})" if item.length else "sa.String()"
    return "sa.DateTime(timezone=True)" if isinstance(item, UtcDateTime) else False


def import_tables() -> None:
    """Imports all tables, since the metadata knows only imported ones."""
    for module in pkgutil.walk_packages(db.__path__, "db."):
        if not module.name.startswith("db.migrations"):
            importlib.import_module(module.name)


def run() -> None:
    import_tables()
    engine = make_engine(context.config.attributes["url"], busy_timeout_ms=PATIENCE_MS)
    try:
        # On SQLite the transaction begins IMMEDIATE, which is the lock.
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            context.configure(
                connection=connection,
                target_metadata=metadata,
                render_as_batch=True,
                render_item=plain_type,
            )
            context.run_migrations()
    finally:
        engine.dispose()


run()
