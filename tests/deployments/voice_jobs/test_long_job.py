"""A long recording transcribed by a real Ray job, which runs only on idle cores."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from configs.settings import load_settings
from db.billing import ledger
from db.database import Database
from db.migrate import upgrade
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.billing.operation import Operation
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.transcription import TASK, TranscriptionTask, joined
from pipelines.storage.encryption import Encryption
from pipelines.stt.file import FileRequest
from tests.api.native.jobs.doing import recording
from tests.db.test_chats import add_workspace
from tests.deployments.conftest import TestCluster, worker_app
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
    upgrade(settings.database_url)
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


@pytest.mark.slow
async def test_a_recording_is_transcribed_on_idle_cores_despite_a_killed_process(
    jobs: tuple[Jobs, Database], tmp_path: Path
) -> None:
    queue, database = jobs
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    await database.run(ledger.open_account, principal.workspace_id, CREDIT)
    audio = tmp_path / "talk.wav"
    audio.write_bytes(recording(600, every_s=5))
    options = TASK.dump_json(TranscriptionTask(FileRequest(words=True), "", 3600.0, 60.0))
    made = await queue.create(principal, Operation(), "transcription", "talk", options, audio)

    async def until(part: float) -> str:
        async with asyncio.timeout(3 * PATIENCE_S):
            while True:
                job = (await queue.get(principal, made.id))[0]
                if job.status != "processing" or job.progress >= part:
                    return job.status
                await asyncio.sleep(0.05)

    await until(0.05)
    (pid,) = pids_of(str(made.id))
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE
    os.kill(pid, signal.SIGKILL)
    assert await until(2.0) == "completed"  # its end, whatever its progress
    transcript = joined(await queue.results(principal, made.id))
    assert transcript.duration_s == 600 and "quick brown" in transcript.text
    assert await database.read(ledger.credit_of, principal.workspace_id) == CREDIT - 60_000
