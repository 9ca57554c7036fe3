"""The queue of custom voices is fair: workspaces take turns, on both databases."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest
from sqlmodel import Session, col, update

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from db.database import Database, utc_now
from db.jobs.queue import in_turn
from db.voices.queue import claim_voice, ends_in_turn, expect_waiting
from db.voices.voices import Voice, voice_of
from tests.db.rows import execute
from tests.db.test_chats import add_workspace
from tests.db.voices.test_voices import add, new_voice

NOW = utc_now()
MINUTE = timedelta(minutes=1)
WORK = load_yaml(CustomVoicesConfig, "custom_voices").work.model_copy(
    update={"seconds_per_voice": 300.0}
)


@pytest.fixture
async def workspaces(database: Database) -> dict[str, int]:
    return {name: await add_workspace(database, f"{name}@b.co") for name in "ABC"}


async def add_voices(database: Database, workspace_id: int, count: int, first: int) -> list[UUID]:
    """Adds `count` voices that were requested one second after another, from `first` on."""
    return [
        await add(
            database, new_voice(workspace_id, created_at=NOW + timedelta(seconds=first + number))
        )
        for number in range(count)
    ]


async def queue_order(database: Database) -> list[UUID]:
    voices = await database.read(lambda session: list(in_turn(session, Voice, NOW, WORK)))
    return [voice.id for voice in voices]


async def finish_next(database: Database, at: datetime) -> UUID:
    """Claims the next voice of the queue and marks it as finished."""

    def work(session: Session) -> UUID:
        voice = claim_voice(session, f"lease {at}", at, WORK)
        assert voice is not None
        voice.status, voice.finished_at = "ready", at
        return voice.id

    return await database.run(work)


async def test_a_single_voice_waits_for_one_of_anothers_ten(
    database: Database, workspaces: dict[str, int]
) -> None:
    many = await add_voices(database, workspaces["A"], 10, 0)
    (one,) = await add_voices(database, workspaces["B"], 1, 10)
    expected = [many[0], one, *many[1:]]
    assert await queue_order(database) == expected
    begun = [await finish_next(database, NOW + number * MINUTE) for number in range(11)]
    assert begun == expected


async def test_the_workspace_served_most_recently_gets_the_next_turn_last(
    database: Database, workspaces: dict[str, int]
) -> None:
    a = await add_voices(database, workspaces["A"], 3, 0)
    assert await finish_next(database, NOW) == a[0]
    b = await add_voices(database, workspaces["B"], 2, 10)
    assert await finish_next(database, NOW + MINUTE) == b[0]
    c = await add_voices(database, workspaces["C"], 2, 20)
    expected = [c[0], a[1], b[1], c[1], a[2]]
    assert await queue_order(database) == expected
    begun = [await finish_next(database, NOW + number * MINUTE) for number in range(2, 7)]
    assert begun == expected


async def test_a_voice_that_gave_way_is_behind_those_of_its_workspace(
    database: Database, workspaces: dict[str, int]
) -> None:
    a = await add_voices(database, workspaces["A"], 3, -30)
    b = await add_voices(database, workspaces["B"], 2, -20)
    gave_way = {"progress": 0.5, "lease_until": NOW - timedelta(seconds=1)}
    await execute(database, update(Voice).where(col(Voice.id) == a[0]).values(gave_way))
    assert await queue_order(database) == [a[1], b[0], a[2], b[1], a[0]]


async def test_estimated_completion_times_follow_the_fair_order(
    database: Database, workspaces: dict[str, int]
) -> None:
    many = await add_voices(database, workspaces["A"], 3, 0)
    (one,) = await add_voices(database, workspaces["B"], 1, 10)

    def expect(session: Session) -> dict[UUID, datetime]:
        expect_waiting(session, NOW, WORK)
        return dict(ends_in_turn(session, NOW, WORK))

    ends = await database.run(expect)
    order = [many[0], one, *many[1:]]
    assert ends == {voice_id: NOW + 5 * n * MINUTE for n, voice_id in enumerate(order, start=1)}
    row = await database.read(voice_of, workspaces["B"], one)
    assert row is not None and row.estimated_completion == NOW + 10 * MINUTE
