"""The deployed worker delivers webhook events, and loses none when it is killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from sqlmodel import select, update

from configs.settings import load_settings
from db.billing import ledger
from db.database import Database, utc_now
from db.webhooks import Delivery, EncryptText, NewEvent, add_event
from models.stt.options import RecognitionOptions
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.billing.operation import Operation
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.transcription import TASK, TranscriptionTask
from pipelines.storage.encryption import Encryption
from pipelines.webhooks.registration import Webhooks
from tests.db.rows import execute, rows
from tests.db.test_chats import add_workspace
from tests.deployments.conftest import TestCluster, actor_pid, worker_app
from tests.migrated import migrate
from tests.patience import PATIENCE_S, until
from tests.pipelines.webhooks.receivers import Authority, receiver

Outbox = tuple[Database, Webhooks, Principal, EncryptText]

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def outbox(
    ray_cluster: TestCluster, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Outbox]:
    """The database of a running worker, and a workspace in it."""
    folder: Path = tmp_path_factory.mktemp("worker")
    environment = {
        "ANTIPHON_DATA": str(folder),
        "WEBHOOK_NETWORKS": "127.0.0.0/8",
        "WEBHOOK_CA_FILE": authority.ca_file,
        "WEBHOOK_TIME_SCALE": "0.01",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        settings = load_settings()
    migrate(settings.database_url)
    database = Database(settings.database_url)
    encryption = Encryption(settings.secrets.data_keys)
    webhooks = Webhooks(database, encryption, settings)
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    app = worker_app(environment)
    async with ray_cluster.with_app(app):
        yield database, webhooks, principal, encryption.encrypt_text
    database.close()


async def test_a_webhook_is_delivered_within_a_second(outbox: Outbox, authority: Authority) -> None:
    database, webhooks, principal, encrypt = outbox
    async with receiver(authority) as hook:
        webhook = await webhooks.register(principal, hook.url, ["voice.ready"], "a test secret")
        clock = asyncio.get_running_loop().time
        lags = []
        for count in range(1, 6):
            began = clock()
            event = NewEvent("voice.ready", {"n": count})
            await database.run(add_event, principal.workspace_id, event, encrypt)
            lags.append((await hook.until(count))[-1].at - began)
        await webhooks.delete(principal, webhook.id)
    assert sorted(lags)[2] < 1, lags


async def test_a_worker_killed_during_deliveries_loses_no_event(
    outbox: Outbox, authority: Authority
) -> None:
    database, webhooks, principal, encrypt = outbox
    async with receiver(authority, 500) as hook:
        await webhooks.register(principal, hook.url, ["tts.failed"])
        event = NewEvent("tts.failed", {"id": "t"})
        ids = {
            await database.run(add_event, principal.workspace_id, event, encrypt) for _ in range(20)
        }
        await hook.until(3)
        os.kill(await actor_pid("worker#Worker#"), signal.SIGKILL)
        hook.answer = 200
        # Which takes half a minute otherwise.
        await execute(database, update(Delivery).values(lease_until=utc_now()))
        await until(lambda: all_delivered(database), every_s=0.1)
        assert {message.id for message in hook.received} == ids


@pytest.mark.slow
async def test_the_recording_of_a_job_is_fetched_by_the_worker(
    outbox: Outbox, authority: Authority
) -> None:
    """Then by the process of the job it is found to be no recording."""
    database, _, principal, _ = outbox
    await database.run(ledger.open_account, principal.workspace_id, 10_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTIPHON_DATA", str(Path(database._engine.url.database or "").parent))
        settings = load_settings()
    jobs = Jobs.of(settings, database, Encryption(settings.secrets.data_keys))

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"a recording")

    async with receiver(authority, answer) as there:
        task = TranscriptionTask(RecognitionOptions(), there.url, 3600.0, 300.0)
        options = TASK.dump_json(task)
        made = await jobs.create(
            principal, Operation(), "transcription", "talk", options, is_fetched=True
        )
        async with asyncio.timeout(3 * PATIENCE_S):
            while not (job := (await jobs.get(principal, made.id))[0]).finished_at:
                await asyncio.sleep(0.1)
    assert (job.status, job.error) == ("failed", "invalid_audio")


async def all_delivered(database: Database) -> bool:
    return set(await rows(database, select(Delivery.status))) == {"delivered"}
