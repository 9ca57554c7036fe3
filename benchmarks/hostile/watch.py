"""What an attack does to the service: memory, replicas, status 500, and the ledger."""

import os
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.harness.service import Service
from configs.settings import PROJECT_DIR
from tests.processes import children, command_of, find

GATEWAY = "ServeReplica:gateway:Gateway"
_REPLICA = re.compile(r"ServeReplica:(\w+:\w+)")
_FAILURES = re.compile(
    r'^antiphon_(?:http_requests_total{.*status="500"|socket_closes_total{.*code="1011").* (\S+)$',
    re.MULTILINE,
)
SIGN_UP_MICRO_USD = 5_000_000
REPORT_S = 6.0  # after which the counts of every process are in GET /metrics


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the service at one moment."""

    replicas: dict[str, set[int]]  # process ids by deployment
    failures: float  # answers with status 500 and sockets closed with 1011, in all

    def lost_since(self, before: "Snapshot") -> list[str]:
        """The deployments whose earlier processes have all ended."""
        return [
            name
            for name, pids in before.replicas.items()
            if not pids & self.replicas.get(name, set())
        ]


class Watch:
    """Reads what /proc, GET /metrics and the database tell of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def _gateway(self) -> Path:
        (pid, *_) = find(self._service.pid, GATEWAY)
        return Path(f"/proc/{pid}")

    def reset_peak(self) -> None:
        """Begins a new peak of the gateway's memory."""
        (self._gateway / "clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The gateway's largest resident memory since the last reset."""
        return self._status_bytes("VmHWM")

    def resident_bytes(self) -> int:
        return self._status_bytes("VmRSS")

    def _status_bytes(self, name: str) -> int:
        status = (self._gateway / "status").read_text()
        return int(status.split(f"{name}:")[1].split()[0]) * 1024

    def model_pids(self) -> list[int]:
        """The processes of models."""
        return [pid for name, pids in self._replicas().items() if "models:" in name for pid in pids]

    def _replicas(self) -> dict[str, set[int]]:
        """Process ids by deployment."""
        replicas: dict[str, set[int]] = defaultdict(set)
        for pid in children(self._service.pid):
            if found := _REPLICA.search(command_of(pid)):
                replicas[found[1]].add(pid)
        return dict(replicas)

    def snapshot(self) -> Snapshot:
        page = httpx.get(f"{self._service.url}/metrics", timeout=60).raise_for_status().text
        return Snapshot(self._replicas(), sum(map(float, _FAILURES.findall(page))))

    def spent_micro_usd(self, emails: Sequence[str]) -> int:
        """What the accounts of these addresses have spent of their first credit."""
        query = (
            "SELECT account.balance FROM account JOIN workspace ON workspace.id = workspace_id "
            "JOIN users ON users.id = owner_id WHERE email = ?"
        )
        with closing(self._database()) as database:
            left = [database.execute(query, (email,)).fetchone() for email in emails]
        return sum(SIGN_UP_MICRO_USD - row[0] for row in left if row is not None)

    def _database(self) -> sqlite3.Connection:
        file = f"file:{self._service.data / 'antiphon.db'}?mode=ro"
        return sqlite3.connect(file, uri=True, timeout=30)

    def ledger_fault(self) -> str:
        """What the operator's check finds wrong with the ledger; empty when it is exact."""
        done = subprocess.run(
            [sys.executable, "-m", "deployments.operator", "reconcile"],
            cwd=PROJECT_DIR,
            env={**os.environ, "ANTIPHON_DATA": str(self._service.data)},
            capture_output=True,
            text=True,
        )
        return "" if done.returncode == 0 else (done.stderr.strip() or "reconcile failed")
