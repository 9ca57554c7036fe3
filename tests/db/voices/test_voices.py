"""Custom voices and their queue on both databases."""

import asyncio
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlmodel import Session

from configs.load import load_yaml
from configs.schema.voices import CustomVoicesConfig
from db.database import Database, utc_now
from db.jobs.queue import hopeless_row, hopeless_rows, leased_row, unfinished_operations
from db.voices.queue import claim_voice
from db.voices.voices import (
    Voice,
    VoiceSample,
    count_voices,
    files_of,
    ready_voices,
    visible_voice,
    voice_of,
    voices_page,
)
from tests.db.test_chats import add_workspace

NOW = utc_now()
LATER = NOW + timedelta(minutes=1)
DAY = timedelta(days=1)
WORK = load_yaml(CustomVoicesConfig, "custom_voices").work.model_copy(update={"most_attempts": 2})


def new_voice(workspace_id: int, name: str = "Ann", **columns: object) -> Voice:
    voice_id = uuid4()
    values: dict[str, object] = {
        "id": voice_id,
        "workspace_id": workspace_id,
        "name": name,
        "name_key": name.casefold(),
        "language": "en",
        "gender": "neutral",
        "estimated_completion": LATER,
        "operation": f"voice-{voice_id}",
        **columns,
    }
    return Voice.model_validate(values)


async def add(database: Database, voice: Voice) -> UUID:
    samples = [
        VoiceSample(
            voice_id=voice.id,
            position=n,
            file_id=f"file_{voice.id.hex[:20]}{n}",
            seconds=40,
            speech_share=0.8,
            snr_db=30,
            level_dbfs=-20,
            clipped_share=0,
        )
        for n in range(3)
    ]

    def write(session: Session) -> None:
        session.add(voice)
        session.flush()
        session.add_all(samples)

    await database.run(write)
    return voice.id


async def claim(database: Database, lease: str, now: datetime = NOW) -> UUID | None:
    claimed = await database.run(claim_voice, lease, now, WORK)
    return None if claimed is None else claimed.id


async def test_voices_are_listed_newest_first_by_status_and_language(database: Database) -> None:
    mine, other = await add_workspace(database), await add_workspace(database, "b@b.co")
    for number in range(5):
        status = "ready" if number % 2 else "processing"
        language = "de" if number == 3 else "en"
        at = NOW + timedelta(seconds=number)
        voice = new_voice(mine, f"v{number}", status=status, language=language, created_at=at)
        await add(database, voice)
    await add(database, new_voice(other, "foreign"))
    page, total = await database.read(voices_page, mine, 1, 2)
    assert ([one.name for one, _ in page], total) == (["v4", "v3"], 5)
    page, total = await database.read(voices_page, mine, 3, 2)
    assert ([one.name for one, _ in page], total) == (["v0"], 5)
    page, total = await database.read(voices_page, mine, 1, 20, "ready")
    assert ([one.name for one, _ in page], total) == (["v3", "v1"], 2)
    page, total = await database.read(voices_page, mine, 1, 20, "ready", ("de", "deu"))
    assert ([one.name for one, _ in page], total) == (["v3"], 1)
    assert [one.name for one in await database.read(ready_voices, mine)] == ["v3", "v1"]
    assert await database.read(count_voices, mine) == 5
    assert len(await database.read(unfinished_operations, mine)) == 3


async def test_a_voice_name_finds_the_voice_that_is_ready(database: Database) -> None:
    mine = await add_workspace(database)
    ready = await add(database, new_voice(mine, status="ready", created_at=NOW))
    await add(database, new_voice(mine, status="failed", created_at=LATER))
    await add(database, new_voice(mine, status="processing", created_at=LATER))
    found = await database.read(visible_voice, mine, "ann")
    assert found is not None and found.id == ready
    assert await database.read(visible_voice, mine, "bob") is None
    assert await database.read(visible_voice, mine + 1, "ann") is None


async def test_the_oldest_voice_is_claimed_first_and_no_voice_twice(database: Database) -> None:
    mine = await add_workspace(database)
    ids = [
        await add(database, new_voice(mine, created_at=NOW + timedelta(seconds=number)))
        for number in range(3)
    ]
    assert await claim(database, "first") == ids[0]
    rest = await asyncio.gather(*(claim(database, f"lease {number}") for number in range(4)))
    assert {one for one in rest if one is not None} <= set(ids[1:])
    taken = [one for one in rest if one is not None]
    assert len(taken) == len(set(taken)) and taken
    while (one := await claim(database, uuid4().hex)) is not None:
        taken.append(one)
    assert sorted(taken, key=str) == sorted(ids[1:], key=str)


async def test_an_expired_lease_is_taken_over_until_the_time_limit(database: Database) -> None:
    mine = await add_workspace(database)
    voice_id = await add(database, new_voice(mine))
    assert await claim(database, "one") == voice_id
    first = await database.read(voice_of, mine, voice_id)
    assert first is not None and await database.run(leased_row, first) is not None
    assert await claim(database, "two") is None
    lapsed = NOW + timedelta(seconds=WORK.lease_s + 1)
    assert await claim(database, "two", lapsed) == voice_id
    assert await database.run(leased_row, first) is None
    second = await database.read(voice_of, mine, voice_id)
    assert second is not None and second.attempt == 1  # one that lapsed is not counted
    assert await database.read(hopeless_rows, Voice, lapsed + timedelta(hours=1), WORK) == []
    late = NOW + timedelta(hours=WORK.give_up_after_hours + 1)
    assert await database.read(hopeless_rows, Voice, late, WORK) == [(mine, voice_id)]
    assert await database.run(hopeless_row, Voice, mine, voice_id, late, WORK) is not None
    assert await database.run(hopeless_row, Voice, mine, voice_id, NOW, WORK) is None


async def test_a_voice_that_waits_beyond_the_limit_is_hopeless(database: Database) -> None:
    mine = await add_workspace(database)
    voice_id = await add(database, new_voice(mine, created_at=NOW))
    assert await database.read(hopeless_rows, Voice, NOW + DAY, WORK) == []
    assert await database.read(hopeless_rows, Voice, LATER + DAY, WORK) == [(mine, voice_id)]


async def test_deleting_a_voice_removes_its_row_and_ends_its_lease(database: Database) -> None:
    mine = await add_workspace(database)
    claimed = new_voice(mine, pack_file="file_pack", lease="any")
    voice_id = await add(database, claimed)

    def delete(session: Session) -> list[str]:
        voice = voice_of(session, mine, voice_id, lock=True)
        assert voice is not None
        files = files_of(session, voice)
        session.delete(voice)
        return files

    assert await database.read(voice_of, mine + 1, voice_id) is None
    assert len(await database.run(delete)) == 4
    assert await database.read(voice_of, mine, voice_id) is None
    assert await database.run(leased_row, claimed) is None
