"""The audit log: a chain of numbered entries that any change or gap breaks."""

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import Session

from db.audit import audit, audit_chain, audit_page, first_break
from db.database import Database


async def _fill(database: Database, workspace_id: int, count: int) -> None:
    for number in range(count):
        await database.run(
            audit, workspace_id, "key.created", "user:1", f"{number}", {"name": "ä", "scopes": []}
        )


async def test_audit_entries_are_numbered_from_one_in_each_workspace(database: Database) -> None:
    await _fill(database, 1, 3)
    await _fill(database, 2, 1)
    page, total = await database.read(audit_page, 1, 1, 2)
    assert total == 3
    assert [entry.number for entry in page] == [3, 2]
    assert [entry.number for entry in await database.read(audit_chain, 2)] == [1]


async def test_a_changed_or_missing_entry_breaks_the_audit_chain(database: Database) -> None:
    await _fill(database, 1, 3)
    chain = await database.read(audit_chain, 1)
    assert first_break(chain) is first_break([]) is None
    assert first_break([chain[0], chain[2]]) == 2
    assert first_break(chain[1:]) == 1
    chain[1].actor = "user:2"
    assert first_break(chain) == 2


async def test_audit_entries_cannot_be_changed_or_deleted(database: Database) -> None:
    await _fill(database, 1, 1)

    def change(session: Session, statement: str) -> None:
        session.connection().execute(text(statement))

    for statement in ("UPDATE audit_entry SET actor = 'x'", "DELETE FROM audit_entry"):
        with pytest.raises(DBAPIError):
            await database.run(change, statement)
    assert first_break(await database.read(audit_chain, 1)) is None


async def test_concurrent_audit_entries_get_consecutive_numbers(database: Database) -> None:
    await asyncio.gather(
        *(database.run(audit, 1, "key.created", "user:1", str(n)) for n in range(40))
    )
    chain = await database.read(audit_chain, 1)
    assert [entry.number for entry in chain] == list(range(1, 41))
    assert first_break(chain) is None
