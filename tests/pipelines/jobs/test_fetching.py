"""Recordings at addresses, fetched from real servers, which may drip, beside other workspaces."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from db.database import Database
from db.jobs.jobs import Job
from models.stt.options import RecognitionOptions
from pipelines.accounts.authentication import Principal
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from pipelines.jobs import fetching, leases
from pipelines.jobs.fetching import Fetcher, Fetches
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.transcription import TASK, TranscriptionTask
from pipelines.storage.encryption import Encryption
from pipelines.storage.files import Files
from pipelines.webhooks import sender as sender_module
from pipelines.webhooks.sender import Sender
from tests.api.local_server import local_settings
from tests.db.test_webhooks import plain
from tests.patience import PATIENCE_S
from tests.pipelines.jobs.test_jobs import CONFIG, PLANS, owner, raise_plan
from tests.pipelines.webhooks.dripping import DrippingServer
from tests.pipelines.webhooks.receivers import Authority, receiver

AUDIO = b"audio" * 40_000


@pytest.fixture
def fetches(database: Database, tmp_path: Path) -> Fetches:
    settings = local_settings(tmp_path)
    files = Files(settings, database, Encryption(settings.secrets.data_keys))
    return Fetches(database, files, Billing(database, PLANS.prices, plain), CONFIG, PLANS)


@asynccontextmanager
async def fetching_from(
    fetches: Fetches, folder: Path, **options: float
) -> AsyncIterator[tuple[DrippingServer, str]]:
    """A running fetcher, whose configuration has the options, and a server, with its address."""
    config = CONFIG.model_copy(update=options)
    authority, server = Authority.make(folder), DrippingServer(AUDIO)
    async with receiver(authority, server.answer) as there:
        async with aclosing(Sender(authority.settings())) as sender:
            running = asyncio.create_task(Fetcher(fetches, sender, config).run())
            try:
                yield server, there.url.rstrip("/")
                assert not running.done()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)


async def add(fetches: Fetches, principal: Principal, url: str) -> Job:
    await raise_plan(fetches, principal)
    options = TASK.dump_json(TranscriptionTask(RecognitionOptions(), url, 3600.0, 300.0))
    return await fetches.create(
        principal, Operation(), "transcription", "n", options, is_fetched=True
    )


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.02)


async def has(fetches: Fetches, principal: Principal, job: Job, status: str) -> bool:
    return (await fetches.get(principal, job.id))[0].status == status


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "LOOK_S", 0.02)


async def test_dripping_servers_of_one_workspace_hold_up_no_recording_of_another(
    database: Database, fetches: Fetches, tmp_path: Path
) -> None:
    slow, quick = await owner(database), await owner(database, "b")
    async with fetching_from(fetches, tmp_path) as (server, url):
        dripping = [await add(fetches, slow, f"{url}/drip") for _ in range(5)]

        async def all_drip() -> bool:
            return server.dripping == CONFIG.fetches_of_workspace

        await until(all_drip)
        whole = await add(fetches, quick, f"{url}/whole")
        await until(lambda: has(fetches, quick, whole, "processing"))
        queue = Jobs(database, fetches._files, fetches._billing, CONFIG, PLANS)
        claimed = await queue.claim()  # the slot is free for it
        assert claimed is not None and claimed.id == whole.id
        assert b"".join([piece async for piece in queue.joined(whole, "part")]) == AUDIO
        assert server.dripping == CONFIG.fetches_of_workspace
        assert [await has(fetches, slow, job, "fetching") for job in dripping] == [True] * 5


async def test_slow_servers_of_many_workspaces_give_their_places_up_in_turn(
    database: Database, fetches: Fetches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "FETCH_GRACE_S", 3600.0)  # as just above the least pace
    options = {"fetches_at_once": 2, "turn_s": 0.5}
    slow = [await owner(database, f"slow{number}") for number in range(3)]
    quick = await owner(database, "quick")
    async with fetching_from(fetches, tmp_path, **options) as (server, url):
        dripping = [await add(fetches, principal, f"{url}/drip") for principal in slow]
        whole = await add(fetches, quick, f"{url}/whole")
        await until(lambda: has(fetches, quick, whole, "processing"))
        assert server.dripping <= 2
        for principal, job in zip(slow, dripping, strict=True):
            assert await has(fetches, principal, job, "fetching")


async def test_slow_servers_keep_their_places_while_no_recording_waits(
    database: Database, fetches: Fetches, tmp_path: Path
) -> None:
    slow = [await owner(database, f"slow{number}") for number in range(2)]
    async with fetching_from(fetches, tmp_path, fetches_at_once=2, turn_s=0.01) as (server, url):
        for principal in slow:
            await add(fetches, principal, f"{url}/drip")

        async def drip() -> bool:
            return server.dripping == 2

        await until(drip)
        await asyncio.sleep(0.5)
        assert server.asked == server.dripping == 2


async def test_a_server_that_drips_is_given_up_after_the_grace(
    database: Database, fetches: Fetches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "FETCH_GRACE_S", 0.5)
    principal = await owner(database)
    async with fetching_from(fetches, tmp_path) as (server, url):
        job = await add(fetches, principal, f"{url}/drip")
        await until(lambda: has(fetches, principal, job, "failed"))
        failed = (await fetches.get(principal, job.id))[0]
        assert failed.error == "invalid_url" and "more slowly than 125 kB" in (failed.reason or "")

        async def nothing_drips() -> bool:
            return server.dripping == 0

        await until(nothing_drips)


async def test_a_worker_that_stops_gives_its_fetches_to_another(
    database: Database, fetches: Fetches, tmp_path: Path
) -> None:
    principal = await owner(database)
    async with fetching_from(fetches, tmp_path) as (server, url):
        job = await add(fetches, principal, f"{url}/drip")

        async def drips() -> bool:
            return server.dripping == 1

        await until(drips)
    again = await fetches.claim()
    assert again is not None and (again.id, again.attempt) == (job.id, 1)


async def test_a_job_that_is_deleted_is_not_fetched_any_more(
    database: Database, fetches: Fetches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fetches, "renew_s", 0.02)
    monkeypatch.setattr(leases, "GRACE_S", 0.02)
    principal = await owner(database)
    async with fetching_from(fetches, tmp_path) as (server, url):
        job = await add(fetches, principal, f"{url}/drip")

        async def dripping(count: int) -> bool:
            return server.dripping == count

        await until(lambda: dripping(1))
        await fetches.delete(principal, job.id)
        await until(lambda: dripping(0))
