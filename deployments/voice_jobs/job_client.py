"""The Ray jobs that make voices: submits, finds and stops them through Ray's job API."""

import asyncio
import os
import shlex
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from sqlalchemy.engine import make_url

from configs.settings import PROJECT_DIR, Settings
from db.voices.voices import Voice

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

PREFIX = "clone-"
# Folders of the tree that a job needs; others may hold the data of the service.
SENT = ("api", "configs", "db", "deployments", "models", "pipelines", "telemetry")

NICENESS = 10  # of the job itself, as of the replicas of models; its computations have less

JobState = Literal["starting", "running", "ended"]


def unsent(tree: Path) -> list[str]:
    """Patterns of all that a job does not need. Ray has no list of what to include."""
    return [f"/{entry.name}" for entry in tree.iterdir() if entry.name not in SENT]


def places(settings: Settings) -> dict[str, str]:
    """Environment variables with absolute paths: a job runs in a folder of its own.

    Only those without a password, since the dashboard shows them. The rest of a job's environment
    is that of the cluster's nodes.
    """
    found = {"ANTIPHON_DATA": str(settings.data_dir)}
    if os.environ.get("ANTIPHON_WEIGHTS"):
        found["ANTIPHON_WEIGHTS"] = str(settings.weights_dir.resolve())
    database = make_url(settings.database_url)
    if database.get_backend_name() == "sqlite" and Path(database.database or "").is_file():
        file = Path(database.database or "").resolve()
        found["DATABASE_URL"] = str(database.set(database=str(file)))
    protocol, _, folder = settings.storage_url.partition("://")
    if protocol == "file":
        found["STORAGE_URL"] = f"file://{Path(folder).resolve()}"
    if settings.webhooks.ca_file is not None:
        found["WEBHOOK_CA_FILE"] = str(Path(settings.webhooks.ca_file).resolve())
    return found


class JobsUnavailable(Exception):
    """A call of Ray's job API failed; it may still take effect."""


@dataclass(frozen=True, slots=True)
class VoiceJob:
    """One attempt at a voice."""

    id: str
    voice_id: UUID
    lease: str


class VoiceJobClient:
    """Those of one service. Blocks in threads; every method raises JobsUnavailable."""

    def __init__(self, service: str, module: str, cluster: str, variables: dict[str, str]) -> None:
        """`service` is its id among those that use the cluster, and `module` the program.

        `cluster` is the address of its GCS. The dashboard shows the `variables`.
        """
        self._service = service
        self._module = module
        self._cluster = cluster
        self._variables = variables

    async def submit(self, claimed: Voice) -> VoiceJob:
        """Its name has the lease: an attempt that was released has the same number as the next."""
        assert claimed.lease, "a claimed voice has one"
        name = f"{PREFIX}{claimed.id}-{claimed.attempt}-{claimed.lease[:6]}"
        job = VoiceJob(name, claimed.id, claimed.lease)
        arguments = [str(job.voice_id), job.lease, self._cluster]
        program = shlex.join([sys.executable, "-m", self._module, *arguments])
        await self._call(
            "submit_job",
            entrypoint=f"exec nice -n {NICENESS} {program}",  # no shell between it and signals
            submission_id=job.id,
            metadata={
                "service": self._service,
                "voice": str(job.voice_id),
                "lease": job.lease,
            },
            runtime_env={
                "working_dir": str(PROJECT_DIR),
                "excludes": [*unsent(PROJECT_DIR), "__pycache__"],
                "env_vars": {**self._variables, "OMP_NUM_THREADS": "1"},
            },
        )
        return job

    async def known(self) -> list[tuple[VoiceJob, bool]]:
        """All that Ray lists, whichever process started them, and whether they have ended."""
        found = []
        for one in await self._call("list_jobs"):
            metadata = one.metadata or {}  # jobs of others have none, or another service
            if one.submission_id and metadata.get("service") == self._service:
                job = VoiceJob(one.submission_id, UUID(metadata["voice"]), metadata["lease"])
                found.append((job, one.status.is_terminal()))
        return found

    async def state(self, job: VoiceJob) -> JobState:
        """As Ray reports it; a job that died with its machine may be reported as running."""
        status = await self._call("get_job_status", job.id)
        if status.is_terminal():
            return "ended"
        return "starting" if status == "PENDING" else "running"

    async def stop(self, job: VoiceJob) -> None:
        """Sends SIGTERM; Ray kills it 3 s later."""
        await self._call("stop_job", job.id)

    async def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return await asyncio.to_thread(lambda: getattr(self._client, method)(*args, **kwargs))
        except Exception as error:  # its client raises RuntimeError, and what requests raises
            raise JobsUnavailable(f"{method}: {error}") from error

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(os.environ.get("RAY_API_SERVER_ADDRESS") or self._cluster)
