"""The scheduling priority of a job's process, which Ray starts in a session of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

AUTOGROUP = Path("/proc/self/autogroup")
LOWER = """
import os
from pathlib import Path
from deployments.voice_jobs.evaluators import lower_priority
lower_priority()
print(os.sched_getscheduler(0) == os.SCHED_IDLE, Path("/proc/self/autogroup").read_text())
"""


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="the kernel does not weigh sessions")
@pytest.mark.parametrize("own_session", [True, False])
def test_a_job_has_the_lowest_weight_in_its_own_session(own_session: bool) -> None:
    before = AUTOGROUP.read_text()
    run = subprocess.run(
        [sys.executable, "-c", LOWER],
        start_new_session=own_session,
        capture_output=True,
        text=True,
        check=True,
    )
    # The group of a process that never began a session is written as an empty line.
    is_idle, _, group = run.stdout.partition(" ")
    assert is_idle == "True" and group.endswith("nice 19\n\n") == own_session
    assert AUTOGROUP.read_text() == before
