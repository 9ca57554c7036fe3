"""The code, prices and configurations that the processes of a cluster run, and Ray's switches.

Differences are reported (`degraded`) and refuse nothing: a rolling update passes through them.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from functools import cache

from configs.settings import PROJECT_DIR
from deployments.cluster.compat import RAY_SWITCHES
from telemetry.reports import Report

PARTS = ("antiphon", "api", "configs", "db", "deployments", "models", "pipelines", "telemetry")
"""The folders of the tree with code and configurations."""
DEPLOYED = "configs/serve_", "configs/llm/", "configs/stt/", "configs/tts/"
"""What operators edit and deploy while the service runs, and older processes never read again."""
BUILDING = "antiphon/setup.py", "antiphon/build/"
"""What builds the client, which a machine that installs its wheel does not have."""


@cache
def release() -> str:
    """A digest of this machine's code and configurations but DEPLOYED. Reads 3 MB, in 20 ms."""
    digest = hashlib.sha256()
    for part in PARTS:
        for path in sorted((PROJECT_DIR / part).rglob("*")):
            name = path.relative_to(PROJECT_DIR).as_posix()
            if path.suffix not in (".py", ".yaml") or name.startswith((*DEPLOYED, *BUILDING)):
                continue
            if path.is_file():
                digest.update(f"{name}\n".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def missing_switches() -> tuple[str, ...]:
    """The variables of RAY_SWITCHES that this process's node was started without."""
    return tuple(name for name in RAY_SWITCHES if name not in os.environ)


def differences(reports: Iterable[Report]) -> dict[str, str]:
    """What processes do not agree on, each with the machine, for the operator."""
    listed = list(reports)
    reasons = {}
    counts = Counter(report.release for report in listed)
    usual = max(counts, key=lambda release: (counts[release], release), default="")
    for report in listed:
        where = f"{report.deployment} on {report.node}"
        if report.release != usual:
            reasons[where] = (
                "runs other code, prices or configurations than most processes:"
                f" {report.release}, not {usual}"
            )
        elif report.missing:
            reasons[where] = f"its node was started without {', '.join(report.missing)}"
    return reasons
