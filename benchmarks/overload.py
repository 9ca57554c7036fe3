"""Overload: the latency of admitted requests, and how fast the others are refused.

    python -m benchmarks.overload

Starts the whole service and asks for short texts by `POST /tts-synthesize`: first one at a time,
then by more clients than are served concurrently, then at three times that throughput, at a
constant rate (open loop). The measurement begins after the burst that admission control admits in
full. The clients run on the same cores.
"""

import asyncio
import time
from collections import defaultdict
from itertools import cycle

import aiohttp

from benchmarks.harness.report import begin, parser, percentile, verdict
from benchmarks.harness.service import new_workspaces, running_service, upgrade_plan
from configs.load import load_yaml
from configs.schema.platform import AdmissionConfig

PATH = "/tts-synthesize"
TEXT = "The train to the coast leaves at nine, so be there early."
WORKSPACES = 12  # each may ask 6,000 times a minute
CLIENTS = 8
TIMES_RATED = 3.0
Answers = dict[int, list[float]]
"""Latencies in milliseconds, by HTTP status."""


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
            answers[answer.status].append((time.perf_counter() - began) * 1000)

    async def closed_loop(self, clients: int, seconds: float) -> Answers:
        """Each client sends its next request when the last one was answered."""
        answers: Answers = defaultdict(list)
        until = time.perf_counter() + seconds

        async def client() -> None:
            while time.perf_counter() < until:
                await self.ask(answers)

        await asyncio.gather(*(client() for _ in range(clients)))
        return answers

    async def open_loop(self, per_s: float, seconds: float) -> Answers:
        """Send requests at a constant rate, without waiting for answers."""
        answers: Answers = defaultdict(list)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as running:
            for number in range(int(per_s * seconds)):
                await asyncio.sleep(max(0.0, began + number / per_s - time.perf_counter()))
                running.create_task(self.ask(answers))
        return answers


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=15.0, help="duration of each load")
    arguments = begin(options, "ray", "uvicorn", "hibari-tts")
    burst_s = load_yaml(AdmissionConfig, "admission").burst_s
    with running_service() as service:
        keys = new_workspaces(service.url, WORKSPACES, lambda: upgrade_plan(service))
        asyncio.run(measure(service.url, keys, burst_s=burst_s, seconds=arguments.seconds))


async def measure(url: str, keys: list[str], *, burst_s: float, seconds: float) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = Clients(url, keys, session)
        await clients.closed_loop(2, 3)  # warm-up
        alone = await clients.closed_loop(1, seconds)
        together = await clients.closed_loop(CLIENTS, burst_s / 2)
        per_s = len(together[200]) / (burst_s / 2)
        burst = await clients.open_loop(TIMES_RATED * per_s, burst_s)
        after = await clients.open_loop(TIMES_RATED * per_s, seconds)
    alone_ms = percentile(alone[200], 95)
    print(f"one client:  p95 {alone_ms:7.1f} ms")
    print(f"{CLIENTS} clients:   p95 {percentile(together[200], 95):7.1f} ms, {per_s:.1f} a second")
    for name, answers in (("the burst", burst), ("after it", after)):
        counts = {status: len(took_ms) for status, took_ms in sorted(answers.items())}
        p95_ms = percentile(answers[200], 95)
        print(
            f"{TIMES_RATED * per_s:.0f} requests/s, {name}: {counts}, "
            f"admitted p95 {p95_ms:.1f} ms, {p95_ms / alone_ms:.2f} times that of one client"
        )
    met = percentile(after[200], 95) <= 2 * alone_ms
    print(f"  target after the burst <= 2: {verdict(met)}")
    p99_ms = percentile(after[503], 99)
    print(
        f"  refused in {percentile(after[503], 50):.1f} ms, p99 {p99_ms:.1f} ms; "
        f"target < 100 ms: {verdict(p99_ms < 100)}"
    )


if __name__ == "__main__":
    main()
