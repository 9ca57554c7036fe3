"""Rows of the history of speech, on both databases."""

from datetime import timedelta

import pytest
from sqlmodel import Session

from db.accounts import User, Workspace, add_user
from db.database import Database, make_engine, utc_now
from db.voices.history import HistoryFilter, HistoryItem, delete_old_items, list_items

OLD = utc_now() - timedelta(days=3)


@pytest.fixture
async def workspace_id(database: Database) -> int:
    """A workspace that keeps speech for two days, and has two older items and a new one."""
    user = User(email="a@example.com", password_hash="")
    workspace = Workspace(owner_id=user.id, name="a", plan="free", speech_history_days=2)
    workspace_id = workspace.id

    def add(session: Session) -> None:
        add_user(session, user, workspace)
        session.flush()
        for number, created_at in enumerate((OLD, OLD, utc_now())):
            item = HistoryItem(
                id=f"{number}",
                workspace_id=workspace_id,
                file_id="",
                source="TTS",
                voice_id="",
                model_id="",
                details=b"",
                created_at=created_at,
            )
            session.add(item)

    await database.run(add)
    return workspace_id


async def test_only_kept_items_are_listed_and_others_deleted(
    database: Database, workspace_id: int
) -> None:
    items, has_more = await database.read(list_items, workspace_id, HistoryFilter(), 1)
    assert [item.id for item in items] == ["2"] and not has_more
    assert await database.run(delete_old_items, utc_now(), workspace_id + 1) == 0
    assert await database.run(delete_old_items, utc_now()) == 2
    assert await database.run(delete_old_items, utc_now()) == 0


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_an_item_that_another_process_deletes_delays_no_other(
    database: Database, database_url: str, workspace_id: int
) -> None:
    engine = make_engine(database_url)
    with Session(engine) as session:
        session.get(HistoryItem, "0", with_for_update=True)
        assert await database.run(delete_old_items, utc_now()) == 1
    engine.dispose()
    assert await database.run(delete_old_items, utc_now()) == 1
