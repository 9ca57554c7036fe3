"""A voice job survives a stop of its service and a kill of all its processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from sqlmodel import Session, update

from configs.settings import PROJECT_DIR
from db.database import utc_now
from db.voices.voices import Voice
from tests.deployments.leased_work.slow_voices import notes
from tests.deployments.leased_work.voice_backend import Watched, backend_in, events
from tests.pipelines.voices.test_queue import PLANS
from tests.processes import children
from tests.promises.conftest import config_without_weights
from tests.servers import free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[subprocess.Popen[bytes]]:
    """As `make run` starts it, with voice jobs that need no weights."""
    config = config_without_weights()
    (worker,) = [app for app in config["applications"] if app["name"] == "worker"]
    worker["import_path"] = "tests.deployments.leased_work.slow_voices:build_worker"
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "deployments.main", "--config", str(file), "--num-cpus", "2"]
    ports = {"PORT": str(free_port()), "RAY_DASHBOARD_PORT": str(free_port())}
    environment = {**os.environ, **ports, "ANTIPHON_DATA": str(folder)}
    process = subprocess.Popen(command, cwd=PROJECT_DIR, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        await asyncio.to_thread(process.wait, 90)


def let_leases_run_out(session: Session) -> None:
    session.exec(update(Voice).values(lease_until=utc_now() - timedelta(seconds=1)))


async def test_a_voice_job_resumes_after_a_stop_and_after_a_kill(tmp_path: Path) -> None:
    backend = backend_in(tmp_path)
    await backend.open_workspace()
    voice = Watched(backend, await backend.add())
    async with service(tmp_path):
        await voice.until(0.1, within_s=120)
    stopped = await voice.look()
    assert (stopped.status, stopped.lease, stopped.attempt) == ("processing", None, 0)
    async with service(tmp_path) as process:
        await voice.until(stopped.progress + 0.1, within_s=120)
        for pid in [process.pid, *children(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    await backend.database.run(let_leases_run_out)  # as they expire by themselves after a minute
    async with service(tmp_path):
        done = await voice.finished(within_s=180)
    assert (done.status, done.attempt) == ("ready", 1)  # a lapsed lease is no failed attempt
    begun = [about for about, _ in notes(tmp_path, "begin")]
    assert len(begun) == 3 and begun == sorted(set(begun))
    assert await backend.spent() == PLANS.prices.custom_voice
    assert await events(backend) == ["voice.created", "voice.ready"]
    backend.database.close()
