"""A long recording and a batch done by real Ray jobs, which run only on idle cores."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio

from configs.settings import load_settings
from db.billing import ledger
from db.database import Database, utc_now
from models.stt.options import RecognitionOptions
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.billing.operation import Operation
from pipelines.jobs import batches
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.transcription import TASK, TranscriptionTask, joined
from pipelines.storage.encryption import Encryption
from tests.api.native.jobs.doing import recording
from tests.db.test_chats import add_workspace
from tests.deployments.conftest import TestCluster, worker_app
from tests.migrated import migrate
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]

CREDIT = 1_000_000


@pytest_asyncio.fixture(loop_scope="session")
async def jobs(
    ray_cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Jobs, Database]]:
    """The jobs of a running Worker."""
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    settings = load_settings()
    migrate(settings.database_url)
    database = Database(settings.database_url)
    async with ray_cluster.with_app(worker_app({"ANTIPHON_DATA": str(tmp_path)}, stop_s=25)):
        yield Jobs.of(settings, database, Encryption(settings.secrets.data_keys)), database
    database.close()


def pids_of(job_id: str) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if job_id.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


async def done_despite_a_kill(queue: Jobs, principal: Principal, job_id: UUID) -> None:
    async def until(part: float) -> str:
        async with asyncio.timeout(3 * PATIENCE_S):
            while True:
                job = (await queue.get(principal, job_id))[0]
                if job.status != "processing" or job.progress >= part:
                    return job.status
                await asyncio.sleep(0.05)

    await until(0.05)
    (pid,) = pids_of(str(job_id))
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE
    os.kill(pid, signal.SIGKILL)
    assert await until(2.0) == "completed"  # its end, whatever its progress


@pytest.mark.slow
async def test_a_recording_is_transcribed_on_idle_cores_despite_a_killed_process(
    jobs: tuple[Jobs, Database], tmp_path: Path
) -> None:
    queue, database = jobs
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    await database.run(ledger.open_account, principal.workspace_id, CREDIT)
    audio = tmp_path / "talk.wav"
    audio.write_bytes(recording(600, every_s=5))
    options = TASK.dump_json(TranscriptionTask(RecognitionOptions(words=True), "", 3600.0, 60.0))
    made = await queue.create(principal, Operation(), "transcription", "talk", options, audio)

    await done_despite_a_kill(queue, principal, made.id)
    transcript = joined(await queue.results(principal, made.id))
    assert transcript.duration_s == 600 and "quick brown" in transcript.text
    assert await database.read(ledger.credit_of, principal.workspace_id) == CREDIT - 60_000


@pytest.mark.slow
async def test_a_killed_process_neither_repeats_nor_recharges_batch_lines(
    jobs: tuple[Jobs, Database], tmp_path: Path
) -> None:
    queue, database = jobs
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    await database.run(ledger.open_account, principal.workspace_id, 10 * CREDIT)
    said = {"messages": [{"role": "user", "content": "word " * 300}]}
    asked = {"method": "POST", "url": "/v1/chat/completions", "body": said}
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"custom_id": f"{n}", **asked}) + "\n" for n in range(400)))
    task = batches.BatchTask(lines.stat().st_size, utc_now(), "/v1/chat/completions")
    options = batches.TASK.dump_json(task)
    made = await queue.create(principal, Operation(), "batch", "lines", options, lines, 400)
    await queue.begin_batch(principal, made.id, options)
    await done_despite_a_kill(queue, principal, made.id)
    read = b"".join([piece async for piece in queue.joined(made, "result")]).splitlines()
    assert [json.loads(one)["custom_id"] for one in read] == [f"{n}" for n in range(400)]
    used = sum(json.loads(one)["response"]["body"]["usage"]["total_tokens"] for one in read)
    credit = await database.read(ledger.credit_of, principal.workspace_id)
    assert credit == 10 * CREDIT - 20 * used and used > 400 * 600
