"""Custom voices made by real Ray jobs: made and charged once even if processes are killed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from pipelines.voices.service import LEAST_SHARE
from tests.deployments.conftest import TestCluster, actor_pid, worker_app
from tests.deployments.leased_work.slow_voices import GENERATIONS, TRIALS, notes
from tests.deployments.leased_work.voice_backend import Watched, backend_in, events
from tests.patience import PATIENCE_S
from tests.pipelines.voices.test_queue import PLANS, VoiceBackend

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def other_cluster() -> Iterator[None]:
    """The Ray cluster of another service on this machine, which Ray jobs could find too."""
    program = (
        "import ray, sys; ray.init('local', num_cpus=0, include_dashboard=False);"
        "print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.stdin.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def backend(
    ray_cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VoiceBackend]:
    """A workspace in the database of a running Worker."""
    folder: Path = tmp_path_factory.mktemp("voices")
    backend = backend_in(folder)
    program = "tests.deployments.leased_work.slow_voices:build_worker"
    environment = {"ANTIPHON_DATA": str(folder)}
    app = worker_app(environment, program, stop_s=25)
    async with ray_cluster.with_app(app):
        yield backend
    backend.database.close()


@pytest_asyncio.fixture(loop_scope="session")
async def workspace(backend: VoiceBackend) -> VoiceBackend:
    """A new one for each test."""
    await backend.open_workspace()
    (backend.folder / "notes").unlink(missing_ok=True)
    return backend


async def working_pids(backend: VoiceBackend) -> set[int]:
    """Process ids of the two workers of a voice, one per core, once both have run a trial."""
    async with asyncio.timeout(PATIENCE_S):
        while len(found := {pid for _, pid in notes(backend.folder, "trial")}) < 2:
            await asyncio.sleep(0.1)
    return found


def job_pids(voice: Watched) -> list[int]:
    """Process ids of the jobs that make the voice."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes().split(b"\0")
                if voice.id.encode() in command:
                    found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.slow
async def test_a_voice_is_made_and_charged_once_despite_killed_processes(
    other_cluster: None, workspace: VoiceBackend
) -> None:
    backend = workspace
    voice = Watched(backend, await backend.add())
    evaluators = await working_pids(backend)
    os.kill(evaluators.pop(), signal.SIGKILL)
    await voice.until(voice.progress + 0.05)
    os.kill(await actor_pid("worker#Worker#"), signal.SIGKILL)
    await voice.until(voice.progress + 0.05)
    (job,) = job_pids(voice)
    os.kill(job, signal.SIGKILL)
    done = await voice.finished()
    assert (done.status, done.similarity, done.attempt) == ("ready", 0.9, 2)
    begun = [about for about, _ in notes(backend.folder, "begin")]
    assert begun[0] == 0 and len(begun) == 2 and begun[1] > 0  # resumed from a checkpoint
    trials = [about for about, _ in notes(backend.folder, "trial")]
    assert set(trials) == set(range(GENERATIONS * TRIALS))
    assert await backend.spent() == PLANS.prices.custom_voice
    assert await events(backend) == ["voice.created", "voice.ready"]


async def test_deleting_a_voice_stops_its_processes_within_five_seconds(
    workspace: VoiceBackend,
) -> None:
    backend = workspace
    voice = Watched(backend, await backend.add())
    working = await working_pids(backend) | set(job_pids(voice))
    assert len(working) == 3
    await backend.voices.delete(voice.principal, voice.id)
    deleted = time.monotonic()
    while any(map(is_alive, working)):
        assert time.monotonic() - deleted < 5, working
        await asyncio.sleep(0.1)
    price = PLANS.prices.custom_voice
    assert LEAST_SHARE * price <= await backend.spent() < price
