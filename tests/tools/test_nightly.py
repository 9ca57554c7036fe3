"""`make nightly` goes on after a failure, and ends with a summary."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_targets_after_a_failed_one_also_run() -> None:
    targets = "NIGHTLY=help nothing-of-that-name help"
    run = subprocess.run(
        ["make", "--silent", "nightly", targets], cwd=ROOT, capture_output=True, text=True
    )
    *_, first, second, third = run.stdout.splitlines()
    assert run.returncode != 0
    assert [line.split()[:2] for line in (first, second, third)] == [
        ["help", "passed"],
        ["nothing-of-that-name", "FAILED"],
        ["help", "passed"],
    ]
