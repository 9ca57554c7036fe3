"""Jobs without progress."""

from uuid import uuid4

import pytest

from deployments.voice_jobs.job_client import VoiceJob
from deployments.voice_jobs.progress import STALLED_S, StallMonitor


def test_the_slowest_job_counts_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    monitor = StallMonitor(lambda: now)
    assert monitor.stalled_s() == 0
    slow, quick = (VoiceJob(name, uuid4(), "lease") for name in ("slow", "quick"))
    for now in range(0, 310, 10):
        monitor.observe(slow, 0.0, "starting")
        monitor.observe(quick, now / 1000, "running")
    assert monitor.stalled_s() == 300 > STALLED_S
    logged = [(record.message, vars(record)["job"]) for record in caplog.records]
    assert logged == [("job_stands_still", "slow")]
    monitor.observe(slow, 0.1, "running")
    assert monitor.stalled_s() == 0
    now += 50
    monitor.observe(quick, 0.5, "running")
    assert monitor.stalled_s() == 50
    monitor.forget(slow)
    assert monitor.stalled_s() == 0
