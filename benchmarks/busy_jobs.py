"""Jobs and custom voices beside busy loops: no lease lapses, no attempt is spent, all complete.

python -m benchmarks.busy_jobs [--minutes 10] [--loops 4] [--jobs 20] [--voices 3]

Each kind of job runs alone first. Then a recording, a text, a batch and a voice are in work while
the loops take the cores. When the loops have stopped, this work and more jobs and voices have to
end. Exit status 1 when a lease lapsed, an attempt was counted, a job or voice did not complete or
took more than MAX_RATIO times its usual time, or a hold is open at the end. The usual time of a job
is its time alone. The usual time of voices, which are built at once and keep all cores busy for
minutes, is the time of one voice times their number.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import httpx

from benchmarks.harness.report import begin, parser
from benchmarks.harness.service import Service, add_credit, running_service, upgrade_plan
from tests.pipelines.voices.recordings import good_files, recording, wav

MAX_RATIO = 2.0
DONE = ("completed", "ready")
POLL_S = 0.5
CREDIT_USD = 1000
KINDS = ("transcription", "speech", "batch")
BUSY = "while True: pass"
ROWS = """
    SELECT id, kind, status, lease, lease_until, attempt FROM job
    UNION ALL SELECT id, 'voice', status, lease, lease_until, attempt FROM voice
"""


@dataclass
class Watch:
    """What the rows of jobs and voices went through."""

    service: Service
    lapsed: set[str] = field(default_factory=set)  # leases
    counted: set[str] = field(default_factory=set)  # jobs with attempts that died
    begun: dict[str, float] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)  # from the first lease to the end
    statuses: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def look(self) -> None:
        """Read all rows once."""
        now = datetime.now(UTC)
        clock = time.monotonic()
        for row_id, kind, status, lease, until, attempt in self._rows(ROWS):
            self.kinds[row_id] = kind
            self.statuses[row_id] = status
            if lease and status == "processing":
                self.begun.setdefault(row_id, clock)
                due = datetime.fromisoformat(until).replace(tzinfo=UTC)
                if now > due + timedelta(seconds=1):
                    self.lapsed.add(lease)
            if attempt > 1:
                self.counted.add(row_id)
            if status not in ("processing", "fetching") and row_id in self.begun:
                self.took_s.setdefault(row_id, clock - self.begun[row_id])

    def look_until_ended(self, ids: set[str], seconds: float) -> None:
        """Return when those rows have ended, or after that time."""
        until = time.monotonic() + seconds
        while not ids <= self.took_s.keys() and time.monotonic() < until:
            self.look()
            time.sleep(POLL_S)

    def open_holds(self) -> int:
        return int(self._rows("SELECT count(*) FROM hold")[0][0])

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.service.data / "antiphon.db", timeout=30)) as database:
            return database.execute(query).fetchall()


class Owner:
    """Makes jobs and voices; each method returns the id of its row."""

    def __init__(self, service: Service) -> None:
        headers = {"Authorization": f"Bearer {service.key}"}
        self._client = httpx.Client(base_url=service.url, headers=headers, timeout=300)
        self._count = 0

    def make(self, kind: str) -> str:
        self._count += 1
        row_id: str = getattr(self, f"_{kind}")()
        return row_id.replace("-", "")

    def _transcription(self) -> str:
        files = {"audio": ("talk.wav", wav(recording(1, 12)))}
        return str(self._post("/jobs/transcriptions", files=files)["id"])

    def _speech(self) -> str:
        files = {"document": ("text.txt", b"The harbour was quiet that morning.")}
        return str(self._post("/jobs/speech", files=files)["id"])

    def _batch(self) -> str:
        url = "/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 8}
        line = {"custom_id": "1", "method": "POST", "url": url, "body": body}
        files = {"file": ("lines.jsonl", json.dumps(line).encode())}
        file = self._post("/openai/v1/files", files=files, data={"purpose": "batch"})
        batch = {"input_file_id": file["id"], "endpoint": url, "completion_window": "24h"}
        return str(self._post("/openai/v1/batches", json=batch)["id"]).removeprefix("batch_")

    def _voice(self) -> str:
        files = [("files", (name, data)) for name, data in good_files()]
        fields = {"name": f"Voice {self._count}", "consent": "She agreed.", "language": "en"}
        return str(self._post("/voices", files=files, data=fields)["id"])

    def _post(self, path: str, **content: Any) -> Any:
        answer = self._client.post(path, **content)
        if answer.is_error:
            raise RuntimeError(f"{path}: {answer.text}")
        return answer.json()


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(service: Service, options: argparse.Namespace) -> bool:
    """Print the figures; return whether all expectations are met."""
    watch = Watch(service)
    owner = Owner(service)
    patience_s = 60 * options.patience
    kinds = [*KINDS, "voice"] if options.voices and options.voice_alone else [*KINDS]
    alone = {kind: owner.make(kind) for kind in kinds}
    watch.look_until_ended(set(alone.values()), patience_s)
    usual_s = {kind: watch.took_s[row_id] for kind, row_id in alone.items()}
    print("alone:", {kind: round(took_s, 1) for kind, took_s in usual_s.items()}, flush=True)
    usual_s["voice"] = usual_s.get("voice", float("inf")) * options.voices
    beside = {owner.make(kind) for kind in (*KINDS, *["voice"][: options.voices])}  # one voice
    with busy_loops(options.loops):
        until = time.monotonic() + 60 * options.minutes
        while time.monotonic() < until:
            watch.look()
            time.sleep(POLL_S)
        print(f"load {os.getloadavg()[0]:.1f}; {len(watch.lapsed)} lapsed", flush=True)
    stopped_at = time.monotonic()
    after = [owner.make(kind) for _ in range(options.jobs) for kind in KINDS]
    after += [owner.make("voice") for _ in range(options.voices - 1)]
    watch.look_until_ended({*beside, *after}, patience_s)
    print(f"the others took {time.monotonic() - stopped_at:.0f} s", flush=True)
    time.sleep(5)
    times_s: dict[str, list[float]] = defaultdict(list)
    for row_id in after:
        if row_id in watch.took_s:
            times_s[watch.kinds[row_id]].append(watch.took_s[row_id])
    for kind, took_s in times_s.items():
        print(f"{kind}: {len(took_s)}, median {median(took_s):.1f} s, worst {max(took_s):.1f} s")
    ends = Counter((watch.kinds[row_id], watch.statuses[row_id]) for row_id in (*beside, *after))
    print({" ".join(end): count for end, count in ends.items()})
    misses = {
        "leases that lapsed": len(watch.lapsed),
        "with attempts that were counted": len(watch.counted),
        "not completed": sum(count for (_, status), count in ends.items() if status not in DONE),
        "slower than they may be": sum(
            seconds > MAX_RATIO * usual_s[kind]
            for kind, took_s in times_s.items()
            for seconds in took_s
        ),
        "open holds": watch.open_holds(),
    }
    print(f"load {os.getloadavg()[0]:.1f};", misses)
    return not any(misses.values())


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--loops", type=int, default=4)
    options.add_argument("--patience", type=float, default=120, help="minutes after the loops")
    options.add_argument("--jobs", type=int, default=20, help="jobs of each kind after the loops")
    options.add_argument("--voices", type=int, default=3)
    options.add_argument("--no-voice-alone", dest="voice_alone", action="store_false")
    arguments = begin(options)
    with running_service() as service:
        upgrade_plan(service)
        add_credit(service, CREDIT_USD)
        sys.exit(not run(service, arguments))


if __name__ == "__main__":
    main()
