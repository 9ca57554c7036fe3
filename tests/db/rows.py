"""Reads and changes rows of a test's database by one statement."""

from typing import Any

from sqlalchemy.sql.dml import UpdateBase
from sqlmodel import Session
from sqlmodel.sql.expression import SelectOfScalar

from db.database import Database


async def rows(database: Database, query: SelectOfScalar[Any]) -> list[Any]:
    """What the query selects, in a transaction of its own."""
    return await database.read(lambda session: list(session.exec(query)))


async def execute(database: Database, statement: UpdateBase) -> None:
    """Run an update, insertion or deletion in a transaction of its own."""

    def run(session: Session) -> None:
        session.connection().execute(statement)

    await database.run(run)
