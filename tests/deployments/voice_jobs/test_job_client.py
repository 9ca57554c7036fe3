"""VoiceJobClient on a cluster shared with other services, over a fake of Ray's job client."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from db.voices.voices import Voice
from deployments.voice_jobs.job_client import VoiceJob, VoiceJobClient
from tests.db.voices.test_voices import new_voice


class FakeClient:
    """A fake of Ray's job client that lists what was submitted."""

    def __init__(self) -> None:
        self.jobs: list[SimpleNamespace] = []

    def submit_job(self, *, submission_id: str, metadata: dict[str, str], **_: Any) -> None:
        self.add(submission_id, metadata)

    def add(self, name: str | None, metadata: dict[str, str] | None) -> None:
        status = SimpleNamespace(is_terminal=lambda: False)
        self.jobs.append(SimpleNamespace(submission_id=name, metadata=metadata, status=status))

    def list_jobs(self) -> list[SimpleNamespace]:
        return self.jobs


def jobs_of(service: str, client: FakeClient) -> VoiceJobClient:
    jobs = VoiceJobClient(service, "some.program", "127.0.0.1:6379", {})
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
    assert isinstance(job, VoiceJob) and job.id != theirs.id
