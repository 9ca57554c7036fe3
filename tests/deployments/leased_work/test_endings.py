"""Which ends of a job's process count as attempts, and what becomes of a job that always dies."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import ray
from ray import serve

from configs.load import load_yaml
from configs.schema.jobs import JobsConfig
from configs.schema.serve import ModelsArgs
from configs.settings import load_settings
from db.billing import ledger
from db.database import Database
from db.errors import DatabaseError
from deployments.cluster import shared_stores
from deployments.gateway import handles
from deployments.gateway.handles import Deployed
from deployments.leased_work import job as program
from deployments.leased_work import long_job
from deployments.leased_work import watch as watch_module
from deployments.leased_work.job_client import MODELS_APP, WAITS, LeasedJobClient
from deployments.leased_work.watch import Watch
from models.errors import EngineError, EngineLost
from models.stt.options import RecognitionOptions
from pipelines.accounts.authentication import ALL_SCOPES, Principal
from pipelines.billing.operation import Operation
from pipelines.errors import PipelineError
from pipelines.jobs import leases
from pipelines.jobs.jobs import Jobs
from pipelines.jobs.transcription import TASK, TranscriptionTask
from pipelines.storage.encryption import Encryption
from tests.api.native.jobs.doing import recording
from tests.db.test_chats import add_workspace
from tests.deployments.conftest import TestCluster
from tests.migrated import migrate
from tests.patience import PATIENCE_S

WAITING = {
    *("EngineLost", "EngineOverloaded", "EngineStopped", "ModelNotLoaded", "PackMissing"),
    *("DeviceFailed", "OutOfMemory"),
    *("DatabaseUnavailable", "StorageUnavailable", "Overloaded", "PaymentsUnavailable"),
}
"""The errors of what is down, full or not up yet."""


def subclasses(base: type[Exception]) -> Iterator[type[Exception]]:
    yield base
    for each in base.__subclasses__():
        yield from subclasses(each)


ERRORS = {
    error.__name__: error("of a test")
    for base in (EngineError, PipelineError, DatabaseError)
    for error in subclasses(base)
    if error.__module__.partition(".")[0] in ("db", "models", "pipelines")
}
ERRORS |= {"TimeoutError": TimeoutError(), "ENOSPC": OSError(errno.ENOSPC, "a full disk")}
ERRORS |= {"RuntimeError": RuntimeError("a fault"), "MemoryError": MemoryError()}


@pytest.mark.parametrize("name", ERRORS)
def test_only_an_attempt_that_failed_by_itself_is_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: UUID, lease: str) -> int:
        raise ERRORS[name]

    def end(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(sys, "argv", ["job", str(uuid4()), "lease", "127.0.0.1:1"])
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    # A late answer to a call that timed out aborts the process in Ray's shutdown.
    monkeypatch.setattr(ray, "shutdown", lambda: end(-signal.SIGABRT))
    monkeypatch.setattr(program, "setup_logs", lambda: None)
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(SystemExit) as ended:
        program.run(fail)
    waits = name in WAITING or name in ("TimeoutError", "ENOSPC")
    assert ended.value.code == (WAITS if waits else 1)


class SilentIndex:
    """The handle of an index of models that answers no call before the fourth."""

    def __init__(self) -> None:
        self.calls = 0
        self.deployed = self

    async def remote(self) -> Deployed:
        self.calls += 1
        if self.calls < 4:
            await asyncio.sleep(PATIENCE_S)
        return Deployed(ModelsArgs(), problems={}, differences={}, infos={})


@pytest.mark.asyncio
async def test_a_job_waits_for_an_index_of_models_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    migrate(load_settings().database_url)
    monkeypatch.setenv(MODELS_APP, "models")
    index = SilentIndex()
    monkeypatch.setattr(serve, "get_deployment_handle", lambda *_, **__: index)
    monkeypatch.setattr(handles, "POLL_S", 0.01)
    monkeypatch.setattr(long_job, "lower_priority", lambda _: None)
    monkeypatch.setattr(shared_stores, "stores_problem", lambda _: None)
    assert await long_job.work(uuid4(), "lease") == 0  # the job was deleted meanwhile
    assert index.calls == 4

    index.calls = -1000
    monkeypatch.setattr(leases, "PATIENCE_S", 0.2)
    with pytest.raises(EngineLost, match="does not answer within 0.01 s"):
        await long_job.work(uuid4(), "lease")


async def kill(_: UUID, lease: str) -> int:
    """Kills this process, or Ray's that watches it, as the kernel and Ray do for want of memory."""
    whose = os.getppid() if int(lease, 16) % 2 else os.getpid()
    os.kill(whose, signal.SIGKILL)
    await asyncio.sleep(PATIENCE_S)
    return 0


@pytest.mark.ray
@pytest.mark.asyncio(loop_scope="session")
async def test_a_job_that_always_kills_its_process_fails_and_costs_nothing(
    ray_cluster: TestCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATA", str(tmp_path))
    settings = load_settings()
    migrate(settings.database_url)
    database = Database(settings.database_url)
    principal = Principal(1, await add_workspace(database), "w", "free", ALL_SCOPES, None)
    await database.run(ledger.open_account, principal.workspace_id, 1_000_000)
    queue = Jobs.of(settings, database, Encryption(settings.secrets.data_keys))
    audio = tmp_path / "talk.wav"
    audio.write_bytes(recording(10, every_s=5))
    options = TASK.dump_json(TranscriptionTask(RecognitionOptions(), "", 3600.0, 60.0))
    made = await queue.create(principal, Operation(), "transcription", "talk", options, audio)
    claimed = await queue.claim()
    assert claimed is not None
    await queue.hold(claimed, 10_000)
    await queue.give_back(claimed)
    assert await database.read(ledger.credit_of, principal.workspace_id) < 1_000_000

    leases = iter(range(100))
    monkeypatch.setattr("secrets.token_hex", lambda _: f"{next(leases):032x}")
    work = load_yaml(JobsConfig, "jobs").model_copy(update={"lease_s": 1, "most_attempts": 2})
    monkeypatch.setattr(queue, "_work", work)
    address = ray.get_runtime_context().gcs_address
    jobs = LeasedJobClient("a service", __name__, address, {})
    for name in ("LOOK_S", "FOLLOW_S"):
        monkeypatch.setattr(watch_module, name, 0.2)
    watching = asyncio.create_task(Watch(queue, jobs, work).run())
    try:
        async with asyncio.timeout(4 * PATIENCE_S):
            while (job := (await queue.get(principal, made.id))[0]).status == "processing":
                await asyncio.sleep(0.1)
    finally:
        watching.cancel()
    assert (job.status, job.error, job.attempt) == ("failed", "internal_error", 2)
    assert next(leases) == 2  # no attempt was free
    assert await database.read(ledger.credit_of, principal.workspace_id) == 1_000_000
    database.close()


if __name__ == "__main__":
    program.run(kill)
