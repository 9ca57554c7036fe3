"""The processes that Ray has killed because the memory of this machine ran short."""

import os
import re
from pathlib import Path

FOR_MEMORY = (
    "Remove models from serve_config.yaml, choose a smaller CHAT_MODEL, or free or add memory"
    " (docs/operating.md#failure-modes)."
)
KILLED = re.compile(r"(\d+) Workers \(tasks / actors\) killed due to memory pressure")


def killed_for_memory(data_dir: Path) -> str:
    """Describe what Ray has killed since the last start, and the remedy; empty if nothing. Only the
    log of Ray's raylet has it."""
    folder = Path(os.environ.get("RAY_TMPDIR") or data_dir / "ray")
    try:
        log = (folder / "ray/session_latest/logs/raylet.err").read_text(errors="replace")
    except OSError:
        return ""
    if not (count := sum(map(int, KILLED.findall(log)))):
        return ""
    return f"Ray has ended {count} processes of the service for lack of memory. {FOR_MEMORY}"
