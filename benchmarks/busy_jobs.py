"""Jobs and custom voices beside busy loops: no lease lapses, no attempt is spent, all complete.

python -m benchmarks.busy_jobs [--minutes 10] [--loops 4] [--jobs 20] [--voices 3]

Each kind of job runs alone first. Then the loops take the cores while a recording, a text, a batch
and a voice are in work; when they have stopped, those and more jobs and voices have to end. Exit
status 1 when a lease lapsed, an attempt was counted, a job or voice did not complete or took more
than MOST_TIMES its usual time, or a hold is open at the end. The usual time is that of one alone;
for the voices, which keep all cores busy for minutes and are made at once, it is their number times
that.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import httpx

from benchmarks.hardware import hardware
from benchmarks.service import Service, add_credit, running_service, upgrade_plan
from tests.pipelines.voices.recordings import good_files, recording, wav

MOST_TIMES = 2.0
DONE = ("completed", "ready")
LOOK_S = 0.5
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
        """Reads all rows once."""
        now, clock = datetime.now(UTC), time.monotonic()
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

    def until_ended(self, ids: set[str], patience_s: float) -> None:
        """Returns when those have ended, or after `patience_s`."""
        deadline = time.monotonic() + patience_s
        while not ids <= self.took_s.keys() and time.monotonic() < deadline:
            self.look()
            time.sleep(LOOK_S)

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
        self._made = 0

    def make(self, kind: str) -> str:
        self._made += 1
        row_id: str = getattr(self, f"_{kind}")()
        return row_id.replace("-", "")

    def _transcription(self) -> str:
        files = {"audio": ("talk.wav", wav(recording(1, 12)))}
        return str(self._sent("/jobs/transcriptions", files=files)["id"])

    def _speech(self) -> str:
        files = {"document": ("text.txt", b"The harbour was quiet that morning.")}
        return str(self._sent("/jobs/speech", files=files)["id"])

    def _batch(self) -> str:
        messages = [{"role": "user", "content": "Say yes."}]
        url = "/v1/chat/completions"
        line: dict[str, Any] = {"custom_id": "1", "method": "POST", "url": url}
        line |= {"body": {"messages": messages, "max_tokens": 8}}
        files = {"file": ("lines.jsonl", json.dumps(line).encode())}
        file = self._sent("/openai/v1/files", files=files, data={"purpose": "batch"})
        body = {"input_file_id": file["id"], "endpoint": url, "completion_window": "24h"}
        return str(self._sent("/openai/v1/batches", json=body)["id"]).removeprefix("batch_")

    def _voice(self) -> str:
        files = [("files", (name, data)) for name, data in good_files()]
        fields = {"name": f"Voice {self._made}", "consent": "She agreed.", "language": "en"}
        return str(self._sent("/voices", files=files, data=fields)["id"])

    def _sent(self, path: str, **body: Any) -> Any:
        answer = self._client.post(path, **body)
        if answer.is_error:
            raise RuntimeError(f"{path}: {answer.text}")
        return answer.json()


def run(service: Service, options: argparse.Namespace) -> bool:
    """Prints the figures; returns whether all expectations are met."""
    watch, owner = Watch(service), Owner(service)
    patience_s = 60 * options.patience
    kinds = (*KINDS, *(("voice",) if options.voices and options.voice_alone else ()))
    alone = {kind: owner.make(kind) for kind in kinds}
    watch.until_ended(set(alone.values()), patience_s)
    usual_s = {kind: watch.took_s[row_id] for kind, row_id in alone.items()}
    print("alone:", {kind: round(took_s, 1) for kind, took_s in usual_s.items()}, flush=True)
    beside = [owner.make(kind) for kind in (*KINDS, *["voice"][: options.voices])]  # one voice
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.loops)]
    try:
        until = time.monotonic() + 60 * options.minutes
        while time.monotonic() < until:
            watch.look()
            time.sleep(LOOK_S)
        print(f"load {os.getloadavg()[0]:.1f}; {len(watch.lapsed)} lapsed", flush=True)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    stopped_at = time.monotonic()
    after = [owner.make(kind) for _ in range(options.jobs) for kind in KINDS]
    after += [owner.make("voice") for _ in range(options.voices - 1)]
    watch.until_ended({*beside, *after}, patience_s)
    print(f"the others took {time.monotonic() - stopped_at:.0f} s", flush=True)
    time.sleep(5)
    times: dict[str, list[float]] = defaultdict(list)
    for row_id in after:
        if row_id in watch.took_s:
            times[watch.kinds[row_id]].append(watch.took_s[row_id])
    if "voice" in usual_s:
        usual_s["voice"] *= options.voices
    slow = 0
    for kind, took_s in times.items():
        most_s = MOST_TIMES * usual_s.get(kind, float("inf"))
        slow += sum(seconds > most_s for seconds in took_s)
        print(f"{kind}: {len(took_s)}, median {median(took_s):.1f} s, worst {max(took_s):.1f} s")
    ends = Counter(
        f"{watch.kinds[row_id]} {watch.statuses[row_id]}" for row_id in (*beside, *after)
    )
    print(dict(ends))
    misses = {
        "leases that lapsed": len(watch.lapsed),
        "with attempts that were counted": len(watch.counted),
        "not completed": sum(n for end, n in ends.items() if end.split()[1] not in DONE),
        "slower than they may be": slow,
        "open holds": watch.open_holds(),
    }
    print(f"load {os.getloadavg()[0]:.1f};", misses)
    return not any(misses.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--loops", type=int, default=4)
    parser.add_argument("--patience", type=float, default=120, help="minutes, for the others")
    parser.add_argument("--jobs", type=int, default=20, help="of each kind, afterwards")
    parser.add_argument("--voices", type=int, default=3)
    parser.add_argument("--no-voice-alone", dest="voice_alone", action="store_false")
    options = parser.parse_args()
    print(hardware())
    with running_service() as service:
        upgrade_plan(service)
        add_credit(service, CREDIT_USD)
        met = run(service, options)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
