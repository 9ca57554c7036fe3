"""A job that gets no further is told of, once."""

from uuid import uuid4

import pytest

from deployments.voice_jobs.job_client import VoiceJob
from deployments.voice_jobs.progress import STILL_S, Paces


def test_the_slowest_job_counts_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    paces = Paces(lambda: now)
    assert paces.still_s() == 0
    slow, quick = (VoiceJob(name, uuid4(), "lease") for name in ("slow", "quick"))
    for now in range(0, 310, 10):
        paces.note(slow, 0.0, "starting")
        paces.note(quick, now / 1000, "running")
    assert paces.still_s() == 300 > STILL_S
    told = [(record.message, vars(record)["job"]) for record in caplog.records]
    assert told == [("job_stands_still", "slow")]
    paces.note(slow, 0.1, "running")
    assert paces.still_s() == 0
    now += 50
    paces.note(quick, 0.5, "running")
    assert paces.still_s() == 50
    paces.forget(slow)
    assert paces.still_s() == 0
