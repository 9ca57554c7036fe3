"""The latency that rate limits add to a request, with a working Redis and with each of its faults.

    python -m benchmarks.limits

Needs a redis-server. Requests arrive at a constant rate (open loop).
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import uvloop

from benchmarks.harness.report import begin, parser, percentile, verdict
from pipelines.limits.limits import SharedLimits
from pipelines.limits.redis import RedisStore
from tests import servers
from tests.pipelines.limits.redis_faults import slow_proxy
from tests.servers import Server

TARGET_MS = 60.0  # at p99, with any fault of Redis
RATE = 200  # requests a second
SECONDS = 6.0  # of each fault, including the probes of a lost Redis
LIMIT = 10**9


def restart(server: Server) -> None:
    server.kill()
    server.start()


FAULTS: dict[str, Callable[[Server], None]] = {
    "well": lambda server: None,
    "stopped": lambda server: server.signal(signal.SIGSTOP),
    "killed": Server.kill,
    "restarted empty": restart,
}


def main() -> None:
    begin(parser(__doc__), "redis")
    print(f"{RATE} requests a second for {SECONDS:g} s each; the fault comes after a third")
    p99_ms = uvloop.run(measure())
    print(f"target: p99 <= {TARGET_MS:g} ms {verdict(p99_ms <= TARGET_MS)}")
    sys.exit(p99_ms > TARGET_MS)


async def measure() -> float:
    """Return the largest p99 of all faults, in ms."""
    p99s_ms = []
    for name, fault in FAULTS.items():
        async with own_redis() as server:
            p99s_ms.append(await report(name, server.url, partial(fault, server)))
    async with own_redis() as server:
        async with slow_proxy(server.url, 0.2) as slow_url:
            p99s_ms.append(await report("200 ms late", slow_url))
        wrong_url = f"redis://:wrong@{server.url.rpartition('@')[2]}"
        p99s_ms.append(await report("wrong password", wrong_url))
    p99s_ms.append(await report("never there", f"redis://127.0.0.1:{servers.free_port()}/0"))
    return max(p99s_ms)


@asynccontextmanager
async def own_redis() -> AsyncIterator[Server]:
    with servers.redis() as server:
        try:
            yield server
        finally:
            server.kill()  # a stopped process would not handle SIGTERM


async def report(name: str, url: str, fault: Callable[[], None] = lambda: None) -> float:
    """Print latencies of rate limit hits, with `fault` after a third; return the p99 in ms."""
    limits = SharedLimits(RedisStore(url))
    took_ms: list[float] = []
    refused = 0

    async def hit() -> None:
        nonlocal refused
        began = time.perf_counter()
        window = await limits.hit("w", LIMIT)
        took_ms.append((time.perf_counter() - began) * 1000)
        refused += not window.allowed

    tasks = []
    total = round(RATE * SECONDS)
    began = time.monotonic()
    for number in range(total):
        if number == total // 3:
            tasks.append(asyncio.create_task(asyncio.to_thread(fault)))
        tasks.append(asyncio.create_task(hit()))
        await asyncio.sleep(max(0.0, began + (number + 1) / RATE - time.monotonic()))
    await asyncio.gather(*tasks)
    degraded = limits.degraded
    await limits.close()
    p99_ms = percentile(took_ms, 99)
    print(
        f"{name:16} p50 {percentile(took_ms, 50):.2f} ms, p99 {p99_ms:.2f} ms, "
        f"worst {max(took_ms):.2f} ms, refused {refused}, degraded at the end {degraded}"
    )
    return p99_ms


if __name__ == "__main__":
    main()
