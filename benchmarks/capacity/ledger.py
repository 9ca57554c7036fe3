"""Charges a second on PostgreSQL: 64 concurrent writers of one workspace, and of 1,000.

The writers hold and capture credit with the gateway's code, in 8 processes with 8 connections each,
like 8 gateways. PostgreSQL, its disk and the writers share the machine; `pgbench`, where there is
one, sends the statements alone, and shows what PostgreSQL does without Python.
"""

import asyncio
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from psycopg.conninfo import make_conninfo
from sqlalchemy import make_url
from sqlmodel import col

from benchmarks.capacity.figures import Figures, count_rows
from benchmarks.harness.processes import CpuTimes, workers
from benchmarks.harness.report import percentile
from configs.load import load_yaml
from configs.schema.platform import PlansConfig
from db.billing import ledger
from db.billing.tables import LedgerEntry
from db.database import Database, postgres_parameters
from db.migrate import upgrade
from pipelines.billing.billing import Billing
from pipelines.billing.operation import Operation
from tests.servers import DISK, Server, postgres

PROCESSES, WRITERS_EACH = 8, 8
SECONDS = 12.0
SAMPLED = 0.8  # share of the time in which core seconds are counted
CREDIT = 10**12  # micro-USD
HELD, CAPTURED = 100, 90  # characters
SCRIPT = Path(__file__).with_name("charges.sql")


@dataclass
class Written:
    """What one process has done."""

    took_s: list[float] = field(default_factory=list)  # of each hold with its capture
    errors: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0


def write(pipe: Any, url: str, workspaces: int) -> None:
    """Run writers in their own process; they begin when the parent sends a duration."""

    async def run() -> Written:
        database = Database(url)
        billing = Billing(database, load_yaml(PlansConfig, "plans").prices, lambda text, _: text)
        written = Written()
        await asyncio.gather(*(database.ping() for _ in range(WRITERS_EACH)))  # its connections
        pipe.send("ready")
        until = pipe.recv() + time.monotonic()
        cpu_s = time.process_time()

        async def charge_forever() -> None:
            while (began := time.monotonic()) < until:
                workspace = random.randint(1, workspaces)
                try:
                    charge = await billing.hold(workspace, "tts", HELD, Operation())
                    await charge.capture(CAPTURED)
                except Exception as error:  # counted, whatever it is
                    written.errors[type(error).__name__] += 1
                else:
                    written.took_s.append(time.monotonic() - began)

        await asyncio.gather(*(charge_forever() for _ in range(WRITERS_EACH)))
        written.cpu_s = time.process_time() - cpu_s
        database.close()
        return written

    pipe.send(uvloop.run(run()))


def pairs_a_second(server: Server, workspaces: int, seconds: float) -> Figures:
    """Charges by writers as in the service; the ledger is checked after them."""
    with workers(PROCESSES, write, server.url, workspaces) as writers:
        cpu = CpuTimes(postgres=server.process_id)
        for writer in writers:
            writer.pipe.send(seconds)
        time.sleep(seconds * SAMPLED)  # ends before the connections and their processes do
        postgres_s = cpu.used()["postgres"] / SAMPLED
        results: list[Written] = [writer.pipe.recv() for writer in writers]
    took_ms = [1000 * s for result in results for s in result.took_s]
    errors: Counter[str] = sum((result.errors for result in results), Counter())
    wrong = asyncio.run(disagreements(server.url, len(took_ms)))
    return {
        "workspaces": workspaces,
        "writers": PROCESSES * WRITERS_EACH,
        "pairs_per_s": len(took_ms) / seconds,
        "p50_ms": percentile(took_ms, 50),
        "p95_ms": percentile(took_ms, 95),
        "longest_ms": max(took_ms),
        "errors": dict(errors),
        "wrong": wrong,
        "postgres_cpu_ms_per_pair": postgres_s / len(took_ms) * 1000,
        "writers_cpu_ms_per_pair": sum(r.cpu_s for r in results) / len(took_ms) * 1000,
    }


async def disagreements(url: str, pairs: int) -> list[str]:
    """What is wrong in the ledger, which has to add up and to have exactly `pairs` captures."""
    database = Database(url)
    wrong = [str(discrepancy) for discrepancy in await database.read(ledger.discrepancies)]
    database.close()
    captures = await count_rows(url, col(LedgerEntry.kind) == "capture")
    return wrong if captures == pairs else [*wrong, f"{captures} captures of {pairs}"]


def pgbench(server: Server, workspaces: int, seconds: float) -> Figures | None:
    """The statements alone, sent by a program in C."""
    if shutil.which("pgbench") is None:
        return None
    address = make_conninfo(**postgres_parameters(make_url(server.url)))
    command = ["pgbench", "-n", "-M", "prepared", "-f", str(SCRIPT)]
    command += ["-c", str(PROCESSES * WRITERS_EACH), "-j", "2", "-T", f"{seconds:.0f}"]
    command += ["-D", f"workspaces={workspaces}", address]
    cpu = CpuTimes(postgres=server.process_id)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    time.sleep(seconds * SAMPLED)
    used_s = cpu.used()["postgres"] / SAMPLED
    output, _ = process.communicate()
    rate = re.search(rb"tps = ([\d.]+)", output)
    assert rate is not None and b"failed transactions: 0 " in output, output.decode()
    pairs_per_s = float(rate[1])
    return {
        "pairs_per_s": pairs_per_s,
        "postgres_cpu_ms_per_pair": used_s / (pairs_per_s * seconds * SAMPLED) * 1000,
    }


def fsync_ms() -> float:
    """The median of one write of 8 kB that is synced to the disk of the server's data."""
    took_ms = []
    with tempfile.NamedTemporaryFile(dir=DISK) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(bytes(8192))
            file.flush()
            os.fdatasync(file.fileno())
            took_ms.append((time.perf_counter() - began) * 1000)
    return percentile(took_ms, 50)


async def open_accounts(url: str, count: int) -> None:
    database = Database(url)
    for number in range(1, count + 1):
        await database.run(ledger.open_account, number, CREDIT)
    database.close()


def measure() -> Figures:
    figures: Figures = {"fsync_ms": fsync_ms()}
    for name, workspaces in (("one_workspace", 1), ("thousand_workspaces", 1000)):
        with postgres(fsync=True) as server:
            upgrade(server.url)
            asyncio.run(open_accounts(server.url, workspaces))
            figures[name] = pairs_a_second(server, workspaces, SECONDS)
            print(name, figures[name], flush=True)
            figures[f"{name}_pgbench"] = pgbench(server, workspaces, SECONDS)
            print("  pgbench", figures[f"{name}_pgbench"], flush=True)
    return figures
