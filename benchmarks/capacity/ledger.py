"""Charges a second on PostgreSQL: 64 concurrent writers of one workspace, and of 1,000.

Each writer holds credit and captures it, by the code of a gateway, in 8 processes with 8
connections each, as 8 gateways. PostgreSQL, its disk and the writers share the machine; `pgbench`,
where there is one, sends the statements alone, and shows what PostgreSQL does without Python.
"""

import asyncio
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier

import uvloop
from psycopg.conninfo import make_conninfo
from sqlalchemy import make_url
from sqlmodel import func, select

from benchmarks.capacity.figures import CpuTimes, Figures, quantile
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.billing import ledger
from db.billing.tables import LedgerEntry
from db.database import Database, postgres_parameters
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from tests.migrated import migrate
from tests.servers import Server, postgres

PROCESSES, WRITERS_EACH = 8, 8
SECONDS = 12.0
SAMPLED = 0.8  # of which core seconds are counted
CREDIT = 10**12  # micro-USD
HELD, CAPTURED = 100, 90  # characters
# The statements of a hold and a capture, as db/billing/ledger.py sends them.
SCRIPT = r"""
\set account random(1, :workspaces)
\set number random(1, 9000000000000000)
BEGIN;
UPDATE account SET held = held + 1500 WHERE workspace_id = :account
  AND balance - held >= 1500 RETURNING balance;
INSERT INTO hold (operation, workspace_id, amount, service, expires_at)
  VALUES (:client_id || '-' || :number, :account, 1500, 'tts', now() + '15 minutes');
INSERT INTO ledger_entry (workspace_id, operation, kind, amount, held, balance_after, service,
  units, created_at) VALUES (:account, :client_id || '-' || :number, 'hold', 0, 1500, 0, 'tts', 0,
  now());
COMMIT;
BEGIN;
DELETE FROM hold WHERE operation = :client_id || '-' || :number RETURNING amount;
UPDATE account SET balance = balance - 1350, held = held - 1500 WHERE workspace_id = :account
  RETURNING balance;
INSERT INTO ledger_entry (workspace_id, operation, kind, amount, held, balance_after, service,
  units, created_at) VALUES (:account, :client_id || '-' || :number, 'capture', -1350, -1500, 0,
  'tts', 90, now());
COMMIT;
"""


@dataclass
class Written:
    """What one process has done."""

    took_s: list[float] = field(default_factory=list)  # of each hold with its capture
    errors: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0


def write(url: str, workspaces: int, seconds: float, ready: Barrier) -> Written:
    return uvloop.run(_write(url, workspaces, seconds, ready))


async def _write(url: str, workspaces: int, seconds: float, ready: Barrier) -> Written:
    database = Database(url)
    billing = Billing(database, load_yaml(PlansConfig, "plans").prices, lambda text, _: text)
    written = Written()
    await asyncio.gather(*(database.ping() for _ in range(WRITERS_EACH)))  # its connections
    ready.wait()
    until, cpu_s = time.monotonic() + seconds, time.process_time()

    async def one() -> None:
        while (began := time.monotonic()) < until:
            try:
                charge = await billing.hold(random.randint(1, workspaces), "tts", HELD, Operation())
                await charge.capture(CAPTURED)
            except Exception as error:  # counted, whatever it is
                written.errors[type(error).__name__] += 1
            else:
                written.took_s.append(time.monotonic() - began)

    await asyncio.gather(*(one() for _ in range(WRITERS_EACH)))
    written.cpu_s = time.process_time() - cpu_s
    database.close()
    return written


def pairs_a_second(server: Server, workspaces: int, seconds: float) -> Figures:
    """By writers as in the service; checks the ledger after them."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, spawn.Pool(PROCESSES) as pool:
        ready = manager.Barrier(PROCESSES + 1)
        work = (server.url, workspaces, seconds, ready)
        running = [pool.apply_async(write, work) for _ in range(PROCESSES)]
        ready.wait()
        cpu = CpuTimes(postgres=server.process_id)
        time.sleep(seconds * SAMPLED)  # the times of PostgreSQL's processes end with connections
        postgres_s = cpu.used()["postgres"] / SAMPLED
        written = [one.get() for one in running]
    took = [s for one in written for s in one.took_s]
    errors: Counter[str] = sum((one.errors for one in written), Counter())
    wrong = asyncio.run(disagreements(server.url, len(took)))
    return {
        "workspaces": workspaces,
        "writers": PROCESSES * WRITERS_EACH,
        "pairs_per_s": len(took) / seconds,
        "p50_ms": quantile(took, 0.5) * 1000,
        "p95_ms": quantile(took, 0.95) * 1000,
        "longest_ms": max(took) * 1000,
        "errors": dict(errors),
        "wrong": wrong,
        "postgres_cpu_ms_per_pair": postgres_s / len(took) * 1000,
        "writers_cpu_ms_per_pair": sum(one.cpu_s for one in written) / len(took) * 1000,
    }


async def disagreements(url: str, pairs: int) -> list[str]:
    """What does not add up after `pairs` captures, of which none was charged twice."""
    database = Database(url)
    try:
        found = [str(one) for one in await database.read(ledger.discrepancies)]
        captures = await database.read(
            lambda session: session.exec(
                select(func.count()).where(LedgerEntry.kind == "capture")
            ).one()
        )
        return found + ([] if captures == pairs else [f"{captures} captures of {pairs}"])
    finally:
        database.close()


def pgbench(server: Server, workspaces: int, seconds: float) -> Figures | None:
    """The statements alone, sent by a program in C."""
    if shutil.which("pgbench") is None:
        return None
    address = make_conninfo(**postgres_parameters(make_url(server.url)))
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(SCRIPT)
        script.flush()
        command = ["pgbench", "-n", "-M", "prepared", "-f", script.name]
        command += ["-c", str(PROCESSES * WRITERS_EACH), "-j", "2", "-T", f"{seconds:.0f}"]
        command += ["-D", f"workspaces={workspaces}", address]
        cpu = CpuTimes(postgres=server.process_id)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(seconds * SAMPLED)
        used_s = cpu.used()["postgres"] / SAMPLED
        output, _ = process.communicate()
    rate = re.search(rb"tps = ([\d.]+)", output)
    assert rate is not None and b"failed transactions: 0 " in output, output.decode()
    pairs = float(rate[1])
    return {
        "pairs_per_s": pairs,
        "postgres_cpu_ms_per_pair": used_s / (pairs * seconds * 0.8) * 1e3,
    }


def fsync_ms() -> float:
    """The median of one write of 8 kB that is synced to the disk of temporary files."""
    took = []
    with tempfile.NamedTemporaryFile(dir=tempfile.gettempdir()) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(bytes(8192))
            file.flush()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return quantile(took, 0.5) * 1000


async def _open_accounts(url: str, count: int) -> None:
    database = Database(url)
    for number in range(1, count + 1):
        await database.run(ledger.open_account, number, CREDIT)
    database.close()


def measure() -> Figures:
    figures: Figures = {"fsync_ms": fsync_ms()}
    for name, workspaces in (("one_workspace", 1), ("thousand_workspaces", 1000)):
        with postgres(fsync=True) as server:
            migrate(server.url)
            asyncio.run(_open_accounts(server.url, workspaces))
            figures[name] = pairs_a_second(server, workspaces, SECONDS)
            print(name, figures[name], flush=True)
            figures[f"{name}_pgbench"] = pgbench(server, workspaces, SECONDS)
            print("  pgbench", figures[f"{name}_pgbench"], flush=True)
    return figures
