"""The scheduling priority of a job's process, which Ray starts in a session of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

AUTOGROUP = Path("/proc/self/autogroup")
LOWER = """
import os
from pathlib import Path
from deployments.leased_work.evaluators import lower_priority
lower_priority(12)
is_leader = os.getsid(0) == os.getpid() == os.getpgrp()
group = Path("/proc/self/autogroup").read_text()
print(os.sched_getscheduler(0) == os.SCHED_IDLE, is_leader, group)
"""


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="the kernel does not weigh sessions")
@pytest.mark.parametrize(
    "place",
    [{"start_new_session": True}, {"process_group": 0}, {}],
    ids=["a job", "a worker of Ray", "another process"],
)
def test_idle_work_has_a_session_of_its_own_with_little_weight(place: dict[str, Any]) -> None:
    before = AUTOGROUP.read_text()
    run = subprocess.run(
        [sys.executable, "-c", LOWER], capture_output=True, text=True, check=True, **place
    )
    is_idle, is_leader, group = run.stdout.split(" ", maxsplit=2)
    assert is_idle == is_leader == "True"
    assert group.rstrip().endswith("nice 12")
    assert AUTOGROUP.read_text() == before
