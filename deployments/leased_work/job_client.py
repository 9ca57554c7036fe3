"""The client of Ray's job API: submits, lists and stops the programs of voices and jobs."""

import asyncio
import glob
import logging
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import ray
from sqlalchemy.engine import make_url

from configs.environment import MODEL_NICENESS, bypass_proxies
from configs.settings import PROJECT_DIR, Settings, own_catalogue
from db.jobs.jobs import Job
from db.voices.voices import Voice
from deployments.cluster.release import PARTS

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

logger = logging.getLogger(__name__)

PREFIX = "clone-"
MODELS_APP = "ANTIPHON_MODELS_APP"  # environment variable of a job: the application of models
PATIENCE = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    "RAY_grpc_client_keepalive_timeout_ms": "120000",
}
"""Environment variables that set how long Ray's client in a job waits for the cluster. Beside four
busy loops, a job gets so little processor time that it reads no answer within the 5 s of Ray's
nodes. It then considers the connection lost, and would end itself after Ray's default of 60 s."""

JobState = Literal["starting", "running"]

Ending = Literal["finished", "died", "stopped", "waits", "lost"]
"""How an attempt ended: its program finished, died by itself, was stopped, waits for something that
does not answer, or was lost by Ray, perhaps with its machine. Endings in `watch.COUNTED` use up
an attempt."""

WAITS = 75  # the exit status of a program that waits: EX_TEMPFAIL of sysexits.h
KILLED = "JOB_SUPERVISOR_ACTOR_DIED"  # Ray killed it, as for lack of memory, or its machine died
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)  # exit statuses of an unhandled SIGTERM


def unsent(tree: Path) -> list[str]:
    """Return patterns of the files that a job does not need, which may contain the service's data:
    Ray takes only a list of exclusions."""
    return [f"/{glob.escape(entry.name)}" for entry in tree.iterdir() if entry.name not in PARTS]


def places(settings: Settings) -> dict[str, str]:
    """Return environment variables with absolute paths, since a job has its own working folder.
    Paths with a password are left out, since the dashboard shows the variables. A job gets all
    other variables from the cluster's nodes."""
    variables = {"ANTIPHON_DATA": str(settings.data_dir)}
    if os.environ.get("ANTIPHON_WEIGHTS"):
        variables["ANTIPHON_WEIGHTS"] = str(settings.weights_dir.resolve())
    if os.environ.get("ANTIPHON_CATALOGUE"):
        variables["ANTIPHON_CATALOGUE"] = str(own_catalogue())
    database = make_url(settings.database_url)
    if database.get_backend_name() == "sqlite" and Path(database.database or "").is_file():
        file = Path(database.database or "").resolve()
        variables["DATABASE_URL"] = str(database.set(database=str(file)))
    protocol, _, folder = settings.storage_url.partition("://")
    if protocol == "file":
        variables["STORAGE_URL"] = f"file://{Path(folder).resolve()}"
    if settings.webhooks.ca_file is not None:
        variables["WEBHOOK_CA_FILE"] = str(Path(settings.webhooks.ca_file).resolve())
    return variables


class JobsUnavailable(Exception):
    """A call of Ray's job API failed; it may still take effect."""


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """The Ray job of one attempt to build a voice, or to do a job of a workspace."""

    id: str
    row_id: UUID
    lease: str


def ending_of(info: Any) -> Ending:
    """Return how a job of Ray's ended, by its `JobDetails`."""
    code: int | None = info.driver_exit_code
    if info.status == "STOPPED" or code in STOPPED:
        return "stopped"
    if code is None:
        return "lost"  # Ray lost the machine, or its own process that watched the program
    return "finished" if code == 0 else "waits" if code == WAITS else "died"


@dataclass(eq=False, repr=False)
class LeasedJobClient:
    """The Ray jobs of one service. Calls block in threads, and every method raises
    JobsUnavailable."""

    _service: str  # id of the service among those on the cluster
    _module: str  # the program of a job
    _cluster: str  # the address of the cluster's GCS
    _variables: dict[str, str]  # environment variables, which the dashboard shows
    _prefix: str = PREFIX  # prefix of the ids of its jobs

    async def submit(self, claimed: Voice | Job) -> LeasedJob:
        """Submit a job. Its id contains the lease, since attempt numbers repeat after a release."""
        assert claimed.lease, "a claimed row has a lease"
        name = f"{self._prefix}{claimed.id}-{claimed.attempt}-{claimed.lease[:6]}"
        job = LeasedJob(name, claimed.id, claimed.lease)
        arguments = [str(job.row_id), job.lease, self._cluster]
        # Ray may choose another machine: its real paths are the same, but links to them differ.
        python = sys.executable.replace(sys.prefix, os.path.realpath(sys.prefix), 1)
        program = shlex.join([python, "-m", self._module, *arguments])
        await self._call(
            "submit_job",
            # Without `exec`, the shell would get the signals.
            entrypoint=f"exec nice -n {MODEL_NICENESS} {program}",
            submission_id=job.id,
            metadata={"service": self._service, "voice": str(job.row_id), "lease": job.lease},
            runtime_env={
                "working_dir": str(PROJECT_DIR),
                "excludes": [*unsent(PROJECT_DIR), "__pycache__"],
                "env_vars": {**self._variables, **PATIENCE, "OMP_NUM_THREADS": "1"},
            },
        )
        return job

    async def known(self) -> list[tuple[LeasedJob, bool]]:
        """List all jobs of this service that Ray knows, and whether each has ended."""
        jobs = []
        for listed in await self._call("list_jobs"):
            metadata = listed.metadata or {}  # jobs of others have none, or name another service
            is_ours = metadata.get("service") == self._service
            if is_ours and (listed.submission_id or "").startswith(self._prefix):
                job = LeasedJob(listed.submission_id, UUID(metadata["voice"]), metadata["lease"])
                jobs.append((job, listed.status.is_terminal()))
        return jobs

    async def state(self, job: LeasedJob) -> JobState | Ending:
        """Return the state, or how the job ended."""
        info = await self._call("get_job_info", job.id)
        if info.status.is_terminal():
            details = {"job": job.id, "exit_status": info.driver_exit_code}
            logger.info("job_ended", extra={**details, "reason": info.error_type})
            ending = ending_of(info)
            if (ending, info.error_type) == ("lost", KILLED):
                return "died" if info.driver_node_id in await self._nodes() else "lost"
            return ending
        if info.status == "PENDING":
            return "starting"
        # Ray's list may show this state forever for a job that died with its machine.
        node = info.driver_node_id
        return "running" if node is None or node in await self._nodes() else "lost"

    async def _nodes(self) -> set[str]:
        """Return the ids of the machines of the cluster that are up."""
        try:
            nodes = await asyncio.to_thread(ray.nodes)
        except Exception as error:  # RaySystemError, or RPC errors of the GCS
            raise JobsUnavailable(f"nodes: {error}") from error
        return {node["NodeID"] for node in nodes if node["Alive"]}

    async def stop(self, job: LeasedJob) -> None:
        """Send SIGTERM; Ray kills the job 3 s later."""
        await self._call("stop_job", job.id)

    async def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await asyncio.to_thread(lambda: getattr(self._client, method)(*args, **kwargs))
        except Exception as error:  # RuntimeError, and the errors of the library requests
            raise JobsUnavailable(f"{method}: {error}") from error

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        from ray.job_submission import JobSubmissionClient

        address = os.environ.get("RAY_API_SERVER_ADDRESS") or self._cluster
        bypass_proxies(address.rpartition("/")[2].rpartition(":")[0])
        return JobSubmissionClient(address)
