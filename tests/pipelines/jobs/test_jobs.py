"""The queue of jobs on both databases: fair, claimed once, ended once, and cleaned up."""

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from sqlmodel import Session, select, update

from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from configs.schema.platform import PlansConfig
from db.accounts import Workspace
from db.billing import ledger
from db.billing.tables import CreditHold
from db.database import Database, utc_now
from db.files import StoredFile
from db.jobs.jobs import Job, JobFile, delete_old_jobs
from db.jobs.queue import AHEAD
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.errors import InvalidAudio
from pipelines.jobs.fetching import Fetches
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.queue import LeaseLost
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from tests.api.local_server import local_settings
from tests.db.rows import execute, rows
from tests.db.test_chats import add_workspace
from tests.db.test_webhooks import plain

CONFIG = load_yaml(JobsConfig, "jobs")
PLANS = load_yaml(PlansConfig, "plans")
CREDIT = 1_000_000


@pytest.fixture
def jobs(database: Database, tmp_path: Path) -> Jobs:
    settings = local_settings(tmp_path)
    files = Files(settings, database, Encryption(settings.secrets.data_keys))
    return Jobs(database, files, Billing(database, PLANS.prices, plain), CONFIG, PLANS)


async def owner(database: Database, name: str = "a") -> Principal:
    workspace_id = await add_workspace(database, f"{name}@b.co")
    await database.run(ledger.open_account, workspace_id, CREDIT)
    return Principal(1, workspace_id, "w", "enterprise", ALL_SCOPES, None)


async def add(jobs: Jobs, principal: Principal, tmp_path: Path) -> Job:
    upload = tmp_path / uuid4().hex
    upload.write_bytes(b"audio")
    await raise_plan(jobs, principal)
    return await jobs.create(principal, Operation(), "transcription", "n", b"{}", upload)


async def raise_plan(jobs: Jobs, principal: Principal) -> None:
    await jobs._database.run(_enlarge, principal.workspace_id)


def _enlarge(session: Session, workspace_id: int) -> None:
    from db.accounts import Workspace

    workspace = session.get(Workspace, workspace_id)
    assert workspace is not None
    workspace.plan = "enterprise"


async def count(database: Database, table: type) -> int:
    return len(await rows(database, select(table)))


async def test_workspaces_take_turns_and_no_job_is_claimed_twice(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    many, one = await owner(database), await owner(database, "b")
    first = [(await add(jobs, many, tmp_path)).id for _ in range(4)]
    other = (await add(jobs, one, tmp_path)).id
    claimed = [await jobs.claim() for _ in range(2)]
    claimed += await asyncio.gather(*(jobs.claim() for _ in range(5)))
    ids = [claim.id for claim in claimed if claim is not None]
    assert ids[:2] == [first[0], other] and sorted(ids) == sorted([*first, other])
    assert await jobs.count_free() == 0 and len(await jobs.held()) == 5


async def test_new_workspaces_keep_no_other_waiting_for_more_than_an_hour(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    mine = await owner(database)
    book = (await add(jobs, mine, tmp_path)).id
    claimed = await jobs.claim()
    assert claimed is not None
    await jobs.give_back(claimed, pause_s=0.0)  # its turn is over
    new = [(await add(jobs, await owner(database, f"{number}"), tmp_path)).id for number in (1, 2)]
    claimed = await jobs.claim()
    assert claimed is not None and claimed.id == new[0]

    def wait(session: Session) -> None:
        workspace = session.get(Workspace, mine.workspace_id)
        assert workspace is not None and workspace.job_turn_at is not None
        workspace.job_turn_at -= AHEAD

    await database.run(wait)
    claimed = await jobs.claim()
    assert claimed is not None and claimed.id == book


async def test_a_job_ends_once_and_its_input_is_deleted(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    principal = await owner(database)
    await add(jobs, principal, tmp_path)
    claimed = await jobs.claim()
    assert claimed is not None and await count(database, StoredFile) == 2
    await jobs.hold(claimed, 9000)
    await jobs.hold(claimed, 9000)  # by another attempt
    await jobs.keep(claimed, "result", 1, b"some", 1.0, 1000, 0.5)
    for _ in range(2):  # the first answer of the database was lost
        await jobs.keep(claimed, "result", 2, b"more", 1.0, 1000, 0.9)
    half = (await jobs.get(principal, claimed.id))[0]
    assert half.estimated_completion and half.estimated_completion > utc_now() - timedelta(hours=1)
    await jobs.complete(claimed)
    for late in (jobs.complete(claimed), jobs.hold(claimed, 1)):
        with pytest.raises(LeaseLost):
            await late
    with pytest.raises(LeaseLost):
        await jobs.keep(claimed, "result", 3, b"late", 1.0, 1000, 0.9)
    await jobs.fail(claimed, InvalidAudio("late"))
    assert (await jobs.get(principal, claimed.id))[0].status == "completed"
    assert await jobs.results(principal, claimed.id) == [b"some", b"more"]
    assert await count(database, StoredFile) == 2  # the results
    assert await database.read(ledger.credit_of, principal.workspace_id) == CREDIT - 200
    await jobs.delete(principal, claimed.id)
    assert await count(database, StoredFile) == await count(database, JobFile) == 0
    assert await database.read(ledger.credit_of, principal.workspace_id) == CREDIT - 200


async def test_a_job_of_the_owner_of_the_machine_costs_nothing(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    principal = await owner(database)
    await add(jobs, principal, tmp_path)
    claimed = await jobs.claim()
    assert claimed is not None
    jobs._billing = Billing(database, PLANS.prices, plain, free_workspace_id=principal.workspace_id)
    await jobs.hold(claimed, 2 * CREDIT)
    await jobs.keep(claimed, "result", 1, b"some", 1.0, 2 * CREDIT, 1.0)
    jobs._billing = Billing(database, PLANS.prices, plain)  # a start for other machines, too
    await jobs.complete(claimed)
    assert await database.read(ledger.credit_of, principal.workspace_id) == CREDIT
    today = utc_now().date()
    [day] = await database.read(ledger.usage, principal.workspace_id, today, today)
    assert (day.units, day.cost) == (2 * CREDIT, 0)


async def test_a_job_without_progress_fails_and_releases_its_hold(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    principal = await owner(database)
    await add(jobs, principal, tmp_path)
    for number in range(CONFIG.most_attempts):
        claimed = await jobs.claim()
        assert claimed is not None
        if number == 0:
            await jobs.hold(claimed, 1000)
            await jobs.keep(claimed, "result", 1, b"some", 1.0, 500, 0.5)  # progress
        assert await jobs.fail_hopeless() == 0
        await jobs.give_back(claimed, died=True)
    assert await jobs.claim() is None
    assert await jobs.fail_hopeless() == 1
    assert claimed is not None
    failed = (await jobs.get(principal, claimed.id))[0]
    assert (failed.status, failed.error) == ("failed", "internal_error")
    assert await database.read(ledger.credit_of, principal.workspace_id) == CREDIT


async def test_a_recording_that_is_fetched_again_and_again_uses_up_the_attempts(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    principal = await owner(database)
    fetches = Fetches(database, jobs._files, jobs._billing, CONFIG, PLANS)
    await raise_plan(jobs, principal)
    made = await jobs.create(principal, Operation(), "transcription", "n", b"{}", is_fetched=True)
    for _ in range(CONFIG.most_attempts):
        claimed = await fetches.claim()
        assert claimed is not None and await jobs.claim() is None
        await fetches.drop_parts(claimed)
        for number in (1, 2):
            await fetches.keep(claimed, "part", number, b"some")
        await fetches.give_back(claimed, died=True)
    assert (await jobs.get(principal, made.id))[1] == [1, 2]
    assert await fetches.claim() is None and await jobs.fail_hopeless() == 1
    await jobs._files.delete_expired()
    assert await count(database, StoredFile) == 0


async def test_holds_of_unfinished_jobs_are_extended_and_old_jobs_deleted(
    database: Database, jobs: Jobs, tmp_path: Path
) -> None:
    principal = await owner(database)
    await add(jobs, principal, tmp_path)
    waiting = await jobs.create(principal, Operation(), "transcription", "n", b"{}", None, 2)
    claimed = await jobs.claim()
    assert claimed is not None
    await jobs.hold(claimed, 1000)
    soon = utc_now() + timedelta(days=1)
    await execute(database, update(CreditHold).values(expires_at=soon))
    assert await jobs.keep_holds() == 1 and await jobs.keep_holds() == 0
    later = utc_now() + timedelta(minutes=1)
    long_ago = utc_now() - timedelta(days=1)
    assert await database.run(delete_old_jobs, long_ago, long_ago) == 0
    assert await database.run(delete_old_jobs, long_ago, later) == 1  # that waits for parts
    await jobs.complete(claimed)
    assert await database.run(delete_old_jobs, long_ago, later) == 0
    assert (
        await database.run(delete_old_jobs, later, later) == 1 and await count(database, Job) == 0
    )
    await jobs._files.delete_expired()
    assert await count(database, StoredFile) == 0 and waiting.parts == 2
