"""Work that takes its machine down, which sees no attempt die: how often it is begun."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlmodel import Session

from configs.load import load_yaml
from configs.schema.jobs import JobsConfig, WorkConfig
from configs.schema.voices import CustomVoicesConfig
from db.database import Database
from db.jobs.jobs import BATCH, Job
from db.jobs.queue import claim, claim_fetch, leased_row
from tests.db.test_chats import add_workspace
from tests.db.voices.test_voices import new_voice

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOBS = load_yaml(JobsConfig, "jobs")
VOICES = load_yaml(CustomVoicesConfig, "custom_voices").work


def new_job(workspace: int, kind: str, status: str = "processing") -> Job:
    identity = uuid4()
    return Job(
        id=identity,
        workspace_id=workspace,
        kind=kind,
        name="n",
        status=status,
        created_at=NOW,
        operation=f"job-{identity}",
    )


def _add(session: Session, row: Any) -> None:
    session.add(row)


@pytest.mark.parametrize("kind", ["transcription", "speech", BATCH, "fetch", "voice"])
@pytest.mark.parametrize("boot_s", [0, 300])
async def test_work_that_takes_its_machine_down_is_begun_ever_more_rarely(
    kind: str, boot_s: int, database: Database
) -> None:
    workspace = await add_workspace(database)
    work: WorkConfig = VOICES if kind == "voice" else JOBS
    if kind == "voice":
        row: Any = new_voice(workspace, created_at=NOW)
    elif kind == "fetch":
        row = new_job(workspace, "transcription", "fetching")
    else:
        row = new_job(workspace, kind)
    await database.run(_add, row)

    def begin(session: Session, lease: str, now: datetime) -> Any:
        if kind == "fetch":
            return claim_fetch(session, lease, now, JOBS)
        return claim(session, type(row), lease, now, work)

    now, begun = NOW, list[datetime]()
    while now < NOW + timedelta(hours=72):
        if (claimed := await database.run(begin, uuid4().hex, now)) is not None:
            assert claimed.attempt == 1  # the machine died, not the attempt
            begun.append(now)
            now += timedelta(seconds=boot_s)
        left = await database.get(type(row), row.id)
        assert left is not None
        now = max(now, left.lease_until)
    assert 10 <= len(begun) <= 14
    # The second attempt follows as soon as the lease has lapsed.
    assert begun[1] - begun[0] <= timedelta(seconds=max(boot_s, work.lease_s) + 60)


async def test_progress_ends_the_pauses_of_lost_attempts(database: Database) -> None:
    workspace = await add_workspace(database)
    job = new_job(workspace, "speech")
    await database.run(_add, job)
    hour = timedelta(hours=1)
    assert await database.run(claim, Job, "a", NOW, JOBS) is not None
    again = await database.run(claim, Job, "b", NOW + 9 * hour, JOBS)
    assert again is not None
    assert await database.run(claim, Job, "c", NOW + 10 * hour, JOBS) is None

    def advance(session: Session) -> None:
        row = session.get(Job, job.id)
        assert row is not None
        row.lease, row.lease_until = "d", NOW + 11 * hour
        row.progress, row.tried_since = 0.5, None
        session.add(row)

    await database.run(advance)
    later = NOW + 11 * hour + timedelta(seconds=1)
    resumed = await database.run(claim, Job, "e", later, JOBS)
    assert resumed is not None and await database.run(leased_row, resumed) is not None
