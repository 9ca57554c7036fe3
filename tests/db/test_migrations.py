"""Migrations make the tables that the code expects, on both databases."""

import multiprocessing

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import db.chat_tables
import db.keeping_tables
import db.money_tables
import db.voice_tables
import db.webhook_tables  # noqa: F401  (the metadata knows only tables that were imported)
from db.migrate import upgrade
from db.session import make_engine
from db.tables import metadata


def test_migrations_and_tables_agree(database_url: str) -> None:
    upgrade(database_url)
    engine = make_engine(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_second_upgrade_changes_nothing(database_url: str) -> None:
    upgrade(database_url)
    upgrade(database_url)


def test_processes_that_start_at_once_take_turns(database_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    starting = [spawn.Process(target=upgrade, args=(database_url,)) for _ in range(3)]
    for process in starting:
        process.start()
    for process in starting:
        process.join(60)
    assert [process.exitcode for process in starting] == [0, 0, 0]
