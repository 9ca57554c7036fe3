"""LeasedJobClient on a cluster shared with other services, over a fake of Ray's job client."""

import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
import ray
from ray.job_submission import JobStatus

from db.voices.voices import Voice
from deployments.leased_work.job_client import WAITS, LeasedJob, LeasedJobClient
from tests.db.voices.test_voices import new_voice
from tests.servers import UNUSABLE_PROXIES

NODES = [{"NodeID": "here", "Alive": True}, {"NodeID": "there", "Alive": False}]


class FakeClient:
    """A fake of Ray's job client that lists what was submitted."""

    def __init__(self) -> None:
        self.jobs: list[SimpleNamespace] = []
        self.info = SimpleNamespace()

    def submit_job(self, *, submission_id: str, metadata: dict[str, str], **_: Any) -> None:
        self.add(submission_id, metadata)

    def add(self, name: str | None, metadata: dict[str, str] | None) -> None:
        status = SimpleNamespace(is_terminal=lambda: False)
        self.jobs.append(SimpleNamespace(submission_id=name, metadata=metadata, status=status))

    def get_job_info(self, _: str) -> SimpleNamespace:
        return self.info

    def list_jobs(self) -> list[SimpleNamespace]:
        return self.jobs


def jobs_of(service: str, client: FakeClient) -> LeasedJobClient:
    jobs = LeasedJobClient(service, "some.program", "127.0.0.1:6379", {})
    jobs.__dict__["_client"] = cast(Any, client)  # in place of the cached one
    return jobs


def claimed() -> Voice:
    return new_voice(1, lease=uuid4().hex, attempt=1)


async def test_two_services_on_one_cluster_list_only_their_own_jobs() -> None:
    client = FakeClient()
    ours, others = jobs_of("ours", client), jobs_of("others", client)
    job = await ours.submit(claimed())
    theirs = await others.submit(claimed())
    client.add("another", None)
    client.add(None, {"service": "ours"})  # not a submitted job
    assert await ours.known() == [(job, False)]
    assert await others.known() == [(theirs, False)]
    assert await jobs_of("ours", client).known() == [(job, False)]  # after a restart
    assert isinstance(job, LeasedJob) and job.id != theirs.id


@pytest.mark.parametrize(
    ("status", "code", "node", "ending"),
    [
        ("SUCCEEDED", 0, "here", "finished"),
        ("FAILED", 1, "here", "died"),
        ("FAILED", -signal.SIGKILL, "here", "died"),  # such as by the kernel, for want of memory
        ("FAILED", -signal.SIGSEGV, "here", "died"),
        ("FAILED", WAITS, "here", "waits"),
        ("FAILED", -signal.SIGTERM, "here", "stopped"),  # before its program handled the signal
        ("STOPPED", None, "here", "stopped"),
        ("FAILED", None, "here", "died"),  # with Ray's process that watched it
        ("FAILED", None, "there", "lost"),  # with its machine
        ("FAILED", None, None, "lost"),  # never begun
    ],
)
async def test_the_end_of_an_attempt_is_read_from_the_job(
    status: str, code: int | None, node: str | None, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    client = FakeClient()
    jobs = jobs_of("ours", client)
    job = await jobs.submit(claimed())
    client.info = SimpleNamespace(
        status=JobStatus(status),
        driver_exit_code=code,
        driver_node_id=node,
        error_type="JOB_SUPERVISOR_ACTOR_DIED" if code is None else None,
    )
    assert await jobs.state(job) == ending


async def test_a_job_on_a_machine_that_is_gone_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray goes on to list it as running."""
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    client = FakeClient()
    jobs = jobs_of("ours", client)
    job = await jobs.submit(claimed())
    for node, state in (("here", "running"), ("there", "lost"), (None, "running")):
        client.info = SimpleNamespace(status=JobStatus.RUNNING, driver_node_id=node)
        assert await jobs.state(job) == state
    client.info = SimpleNamespace(status=JobStatus.PENDING, driver_node_id=None)
    assert await jobs.state(job) == "starting"


class Dashboard(BaseHTTPRequestHandler):
    """Ray's, without jobs."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        body = [] if self.path.startswith("/api/jobs") else {"ray_version": ray.__version__}
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


async def test_jobs_are_listed_past_a_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in UNUSABLE_PROXIES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_PROXY", "intranet.example")
    with HTTPServer(("127.0.0.1", 0), Dashboard) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", f"http://127.0.0.1:{server.server_port}")
        jobs = LeasedJobClient("ours", "some.program", "127.0.0.1:6379", {})
        assert await jobs.known() == []
        server.shutdown()
    assert os.environ["no_proxy"] == "intranet.example,127.0.0.1"
