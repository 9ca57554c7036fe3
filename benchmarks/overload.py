"""Overload: the latency of admitted requests, and how fast the others are refused.

    python -m benchmarks.overload

Starts the whole service and asks for short texts by `POST /tts-synthesize`: first one at a time,
then by more clients than are served concurrently, then at three times that throughput, at a
constant rate (open loop). Measured is the time after the burst that admission control admits in
full. The clients run on the same cores.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from itertools import cycle

import aiohttp

from benchmarks.hardware import hardware, versions
from benchmarks.service import new_workspaces, running_service, upgrade_plan
from configs.load import load_yaml
from configs.schema.platform import AdmissionConfig

PATH = "/tts-synthesize"
TEXT = "The train to the coast leaves at nine, so be there early."
WORKSPACES = 12  # each may ask 6,000 times a minute
CLIENTS = 8
TIMES_RATED = 3.0


@dataclass
class Answers:
    """Latencies in seconds, by HTTP status."""

    took: dict[int, list[float]] = field(default_factory=dict)

    def note(self, status: int, elapsed_s: float) -> None:
        self.took.setdefault(status, []).append(elapsed_s)

    def p95_ms(self, status: int = 200) -> float:
        return statistics.quantiles(self.took[status], n=20)[18] * 1000


class Clients:
    """Sends requests over many connections, with the keys in turn."""

    def __init__(self, url: str, keys: list[str], session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self._headers = cycle([{"Authorization": f"Bearer {key}"} for key in keys])

    async def ask(self, answers: Answers) -> None:
        began = time.perf_counter()
        async with self._session.post(
            self._url + PATH, json={"text": TEXT}, headers=next(self._headers)
        ) as answer:
            await answer.read()
            answers.note(answer.status, time.perf_counter() - began)

    async def closed(self, clients: int, seconds: float) -> Answers:
        """Closed loop: each client sends its next request when the last one was answered."""
        answers, until = Answers(), time.perf_counter() + seconds

        async def one() -> None:
            while time.perf_counter() < until:
                await self.ask(answers)

        await asyncio.gather(*(one() for _ in range(clients)))
        return answers

    async def open(self, rate: float, seconds: float) -> Answers:
        """Open loop: `rate` requests a second, without waiting for answers."""
        answers, began = Answers(), time.perf_counter()
        running: list[Awaitable[None]] = []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            running.append(asyncio.create_task(self.ask(answers)))
        await asyncio.gather(*running)
        return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of each load")
    options = parser.parse_args()
    print(hardware())
    print(versions("ray", "uvicorn", "hibari-tts"))
    config = load_yaml(AdmissionConfig, "admission")
    with running_service() as service:
        keys = new_workspaces(service.url, WORKSPACES, lambda: upgrade_plan(service))
        asyncio.run(measure(service.url, keys, config.burst_s, options.seconds))


async def measure(url: str, keys: list[str], burst_s: float, seconds: float) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = Clients(url, keys, session)
        await clients.closed(2, 3)  # warm-up
        alone = await clients.closed(1, seconds)
        together = await clients.closed(CLIENTS, burst_s / 2)
        rate = len(together.took[200]) / (burst_s / 2)
        burst = await clients.open(TIMES_RATED * rate, burst_s)
        over = await clients.open(TIMES_RATED * rate, seconds)
    print(f"one client:  p95 {alone.p95_ms():7.1f} ms")
    print(f"{CLIENTS} clients:   p95 {together.p95_ms():7.1f} ms, {rate:.1f} requests/s")
    for name, answers in (("the burst", burst), ("after it", over)):
        counts = {status: len(took) for status, took in sorted(answers.took.items())}
        ratio = answers.p95_ms() / alone.p95_ms()
        print(f"{TIMES_RATED * rate:.0f} requests/s, {name}: {counts},", end=" ")
        print(f"admitted p95 {answers.p95_ms():.1f} ms, {ratio:.2f} of one client's")
    print(f"  target after the burst <= 2: {verdict(over.p95_ms() <= 2 * alone.p95_ms())}")
    refusals = over.took.get(503, [])
    p99_ms = statistics.quantiles(refusals, n=100)[98] * 1000
    print(
        f"  refused in {statistics.median(refusals) * 1000:.1f} ms, p99 {p99_ms:.1f} ms;", end=" "
    )
    print(f"target < 100 ms: {verdict(p99_ms < 100)}")


def verdict(met: bool) -> str:
    return "met" if met else "MISSED"


if __name__ == "__main__":
    main()
