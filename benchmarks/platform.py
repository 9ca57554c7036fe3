"""The time that billing and rate limits add to a request: each of them, and both together.

    python -m benchmarks.platform                    on SQLite, in a folder of its own
    python -m benchmarks.platform --database URL     on an empty PostgreSQL database

CPU time is printed beside wall-clock time, for machines with other load.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import uvloop

from benchmarks.harness.report import begin, parser, percentile, verdict
from db.billing import ledger
from db.database import random_id
from pipelines.billing.operation import Operation
from tests.api.local_server import local_settings
from tests.api.local_services import local_services

TARGET_MS = 1.5
ROUNDS = 2000
WARM_UP = 200
CONCURRENT = 50
UNLIMITED = 10**9  # requests a window: none is refused


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--database", help="URL of an empty database")
    arguments = begin(options, "sqlalchemy", "sqlmodel", "psycopg")
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(Path(folder), arguments.database))


async def measure(folder: Path, database_url: str | None) -> None:
    settings = local_settings(folder)
    if database_url is not None:
        settings = replace(settings, database_url=database_url)
    services = local_services(settings)
    workspace = random_id()
    await services.infrastructure.database.run(ledger.open_account, workspace, 10**12)

    async def count() -> None:
        await services.infrastructure.limits.hit(f"workspace:{workspace}", UNLIMITED)

    async def pay() -> None:
        hold = await services.platform.billing.hold(workspace, "tts", 100, Operation())
        await hold.capture(90)

    async def both() -> None:
        await count()
        await pay()

    for name, work in (("limit", count), ("hold and capture", pay), ("both", both)):
        p50_ms = await report(name, work)
    print(f"target: both at p50 <= {TARGET_MS} ms {verdict(p50_ms <= TARGET_MS)}")
    services.infrastructure.database.close()


async def report(name: str, work: Callable[[], Awaitable[None]]) -> float:
    """Print latencies, CPU time and throughput of `work`; return the sequential p50 in ms."""
    for _ in range(WARM_UP):
        await work()
    took_ms = []
    cpu_s = time.process_time()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await work()
        took_ms.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() - cpu_s) * 1000 / ROUNDS
    began = time.perf_counter()
    for _ in range(ROUNDS // CONCURRENT):
        await asyncio.gather(*[work() for _ in range(CONCURRENT)])
    per_s = ROUNDS / (time.perf_counter() - began)
    p50_ms = percentile(took_ms, 50)
    print(
        f"{name:17} p50 {p50_ms:.3f} ms, p99 {percentile(took_ms, 99):.3f} ms, "
        f"CPU {cpu_ms:.3f} ms, {per_s:.0f} a second with {CONCURRENT} concurrent"
    )
    return p50_ms


if __name__ == "__main__":
    main()
