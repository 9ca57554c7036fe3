"""Attackers beside a well-behaved client of another workspace, on a real service.

    python -m benchmarks.hostile                            lists the attackers
    python -m benchmarks.hostile slow-heads spoken-digits   these, one after another
    python -m benchmarks.hostile --all --output TABLE.md    every one; a Markdown table
    python -m benchmarks.hostile --soak 30                  all at once, for 30 minutes

The well-behaved client runs alone, several times, and beside each attacker. The expectations: no
p95 over 2 times that of the client alone, no refusal of the client, at most 1.2 GB of memory of the
gateway, every replica alive, no status 500, and in the end an exact ledger. Exit status 1 if one is
missed. In a soak, the attackers may slow the client down and cause refusals, and only the other
expectations count. Service, client and attackers share the cores of this machine.
"""

import argparse
import asyncio
import base64
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness.processes import Worker
from benchmarks.harness.report import hardware, parser
from benchmarks.harness.service import Service, operate, running_service
from benchmarks.hostile import attacks
from benchmarks.hostile.attacker import ATTACKS, PASSWORD, Target, run_attacks
from benchmarks.hostile.bystander import Bystander, Latencies
from benchmarks.hostile.watch import REPORT_S, Watch
from benchmarks.tts.socket import wait_until_idle
from tests.pipelines.webhooks.receivers import Authority, receiver

assert attacks.__all__  # imported for what it registers

MOST_TIMES, MOST_BYTES = 2.0, 1.2e9
ROUND_S = 60.0  # after which an attack begins again with new accounts, in a soak
WARM_UP_S = 3.0  # of an attacker, before the client is measured beside it
STOP_S = 60.0
NICENESS = 19  # lower priority than the service, since real attackers use other machines
ATTACKERS = 8  # of one process
ATTACKERS_PER_BASELINE = 4  # after so many, the client is measured alone again
EMAIL = "well-behaved@example.com"
CREDIT_USD = 1000
SAMPLE_S = 30.0
MOST_GROWTH = 1.1  # of the gateway's memory from the second quarter of a soak to the last


@dataclass(frozen=True, slots=True)
class Result:
    """What attackers did to the service and its well-behaved client."""

    name: str
    alone: Latencies  # of the client
    beside: Latencies  # of the client
    peak_bytes: int  # resident memory of the gateway
    lost: list[str]  # deployments whose processes have all ended
    failures: float
    spent_micro_usd: int  # by the attackers
    outcomes: Mapping[str, Mapping[str, int]]  # of the attackers, by name

    @property
    def damage(self) -> list[str]:
        """The expectations that were not met, apart from those of the client."""
        failed = [
            f"{name} ({outcome})"
            for name, seen in self.outcomes.items()
            for outcome in seen
            if "failed" in outcome
        ]
        return [
            text
            for missed, text in (
                (bool(failed), f"the attack itself failed: {', '.join(failed)}"),
                (self.peak_bytes > MOST_BYTES, f"{self.peak_bytes / 1e9:.2f} GB"),
                (bool(self.lost), f"lost {', '.join(self.lost)}"),
                (self.failures > 0, f"{self.failures:g} failures of the service"),
            )
            if missed
        ]

    @property
    def misses(self) -> list[str]:
        """Every expectation that was not met."""
        ratio, kind = self.beside.worst_beside(self.alone)
        slow = [f"{kind} {ratio:.1f} times as slow"] if ratio > MOST_TIMES else []
        refused = [f"refused {dict(self.beside.refused)}"] if self.beside.refused else []
        return slow + refused + self.damage

    @property
    def row(self) -> str:
        """Its line of the Markdown table."""
        ratio, kind = self.beside.worst_beside(self.alone)
        before, after = self.alone.p95_s(kind) * 1000, self.beside.p95_s(kind) * 1000
        cells = [
            f"`{self.name}`",
            ATTACKS[self.name].text,
            f"{kind} {before:.0f} → {after:.0f} ms, {ratio:.2f}",
            str(self.beside.refused.total()),
            f"{self.peak_bytes / 1e6:.0f}",
            ", ".join(self.lost) or "all",
            f"{self.failures:g}",
            f"{self.spent_micro_usd / 1e6:.2f}",
            "no: " + "; ".join(self.misses) if self.misses else "yes",
        ]
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


HEAD = (
    "| attacker | what it does | worst p95 of the client, alone → beside, ratio | refusals | "
    "gateway MB | replicas alive | status 500 | cost USD | holds |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


@dataclass
class Range:
    """A running service with its well-behaved client, to be attacked."""

    target: Target
    bystander: Bystander
    watch: Watch

    async def settle(self) -> None:
        """Waits until no replica of a model computes: after a start it warms up for minutes."""
        for pid in self.watch.model_pids():
            await asyncio.to_thread(wait_until_idle, pid)

    async def attack(
        self,
        names: Sequence[str],
        seconds: float,
        *,
        round_s: float = 86_400.0,
        alone: Latencies | None = None,
    ) -> Result:
        """The client beside attackers that run at once and begin again after `round_s`."""
        before = await asyncio.to_thread(self.watch.snapshot)
        self.watch.reset_peak()
        async with attacking(names, self.target, round_s) as stopped:
            await asyncio.sleep(min(WARM_UP_S, seconds))
            beside = await self.bystander.run(seconds)
        peak_bytes = self.watch.peak_bytes()
        await asyncio.sleep(REPORT_S)
        after = await asyncio.to_thread(self.watch.snapshot)
        return Result(
            " ".join(names),
            alone or Latencies(),
            beside,
            peak_bytes,
            after.lost_since(before),
            max(0.0, after.failures - before.failures),
            self.watch.spent_micro_usd(stopped["emails"]),
            stopped["outcomes"],
        )


@asynccontextmanager
async def attacking(
    names: Sequence[str], target: Target, round_s: float
) -> AsyncIterator[dict[str, Any]]:
    """Runs attackers in processes until the block ends, which fills the yielded dictionary."""
    groups = [names[start : start + ATTACKERS] for start in range(0, len(names), ATTACKERS)]
    starting = (asyncio.to_thread(Worker, attack_process, each, target, round_s) for each in groups)
    processes = await asyncio.gather(*starting)
    result: dict[str, Any] = {"emails": [], "outcomes": {}}
    try:
        yield result
        async with asyncio.timeout(STOP_S):
            ended = await asyncio.gather(
                *(asyncio.to_thread(process.ask, None) for process in processes)
            )
        for part in ended:
            result["emails"] += part["emails"]
            result["outcomes"] |= part["outcomes"]
    finally:
        for process in processes:
            process.kill()


def attack_process(pipe: Connection, names: Sequence[str], target: Target, round_s: float) -> None:
    """Run attackers in a process of their own; when it gets a message, it sends their outcomes."""
    os.nice(NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    pipe.send("ready")
    pipe.send(asyncio.run(run_attacks(pipe, names, target, round_s)))


@contextmanager
def hostile_service(
    folder: Path, command: list[str] | None = None
) -> Iterator[tuple[Service, Authority]]:
    """A service whose webhooks reach this machine and trust an authority in `folder`."""
    authority = Authority.make(folder)
    (folder / "ca.key").write_bytes(authority.ca.private_key_pem.bytes())
    variables = {"WEBHOOK_NETWORKS": "127.0.0.0/8", "WEBHOOK_CA_FILE": authority.ca_file}
    with running_service(command, variables) as service:
        yield service, authority


@asynccontextmanager
async def attacked(service: Service, authority: Authority, folder: Path) -> AsyncIterator[Range]:
    """Signs the well-behaved client up and makes its webhook and its recording."""
    async with AsyncExitStack() as stack:
        hook = await stack.enter_async_context(receiver(authority))
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=service.url, timeout=60)
        )

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            answer = (await client.post(path, json=body)).raise_for_status()
            content: dict[str, Any] = answer.json()
            return content

        key: str = (await post("/auth/signup", {"email": EMAIL, "password": PASSWORD}))["token"]
        for command in (("plan", "enterprise"), ("credit", str(CREDIT_USD))):
            await asyncio.to_thread(operate, service, *command, "--email", EMAIL)
        client.headers["Authorization"] = f"Bearer {key}"
        await post("/webhooks", {"url": hook.url, "events": ["tts.completed"]})
        text = "The train to the coast leaves at nine, so be there early."
        spoken = await post("/tts-synthesize", {"text": text, "output_format": "wav"})
        clip = base64.b64decode(spoken["audio_base64"])
        (folder / "clip.wav").write_bytes(clip)
        voices = (await client.get("/default-voices")).raise_for_status().json()["data"]
        fast = [voice for voice in voices if voice["model"].endswith("Fast")]
        english = [voice for voice in fast if voice["labels"]["language"] == "en"]
        voice = [*english, *voices][0]["voice_id"]
        target = Target(service.url, voice, str(folder / "clip.wav"), str(folder))
        bystander = Bystander(target, key, clip, hook)
        await bystander.run(0, least=3)  # the first request of a kind loads what it needs
        hook.received.clear()
        yield Range(target, bystander, Watch(service))


async def one_after_another(place: Range, names: Sequence[str], seconds: float) -> list[Result]:
    """Each attacker in turn; the client alone is measured again and again between them.

    The measurements of the client alone are pooled, since two of half a minute differed 1.75-fold.
    """
    results, alone = list[Result](), Latencies()
    await place.settle()
    for number, name in enumerate(names):
        if number % ATTACKERS_PER_BASELINE == 0:
            alone.add(await place.bystander.run(seconds))
        result = await place.attack([name], seconds, alone=alone)
        print(result.row, flush=True)
        print(f"  outcomes: {result.outcomes}", file=sys.stderr, flush=True)
        results.append(result)
    return results


async def soak(place: Range, minutes: float) -> list[str]:
    """All attackers at once; returns the expectations that were missed."""
    samples: list[int] = []

    async def sample() -> None:
        while True:
            await asyncio.sleep(SAMPLE_S)
            samples.append(place.watch.resident_bytes())
            print(f"  {len(samples) * SAMPLE_S / 60:5.1f} min {samples[-1] / 1e6:6.0f} MB")

    sampling = asyncio.create_task(sample())
    result = await place.attack(list(ATTACKS), minutes * 60, round_s=ROUND_S)
    sampling.cancel()
    for name, seen in result.outcomes.items():
        print(f"  {name}: {seen}")
    print(f"  refused: {dict(result.beside.refused)}")
    for kind, took in result.beside.took.items():
        print(f"  {kind}: p95 {result.beside.p95_s(kind) * 1000:.0f} ms of {len(took)}")
    quarter = len(samples) // 4
    growth = sum(samples[len(samples) - quarter :]) / max(1, sum(samples[quarter : 2 * quarter]))
    print(f"  memory of the gateway from the second quarter to the last: {growth:.2f} times")
    return result.damage + ([f"{growth:.2f} times the memory"] if growth > MOST_GROWTH else [])


async def run(options: argparse.Namespace) -> bool:
    """Whether every expectation was met."""
    began = time.monotonic()
    misses: list[str] = []
    with tempfile.TemporaryDirectory(prefix="antiphon-hostile-") as name:
        folder = Path(name)
        with hostile_service(folder) as (service, authority):
            async with attacked(service, authority, folder) as place:
                if options.soak:
                    misses += await soak(place, options.soak)
                else:
                    print(HEAD)
                    names = list(ATTACKS) if options.all else options.attackers
                    results = await one_after_another(place, names, options.seconds)
                    misses += [f"{r.name}: {miss}" for r in results for miss in r.misses]
                    if options.output:
                        table = "\n".join([HEAD, *(result.row for result in results), ""])
                        Path(options.output).write_text(f"{hardware()}\n\n{table}")
                await asyncio.sleep(REPORT_S)
                if fault := await asyncio.to_thread(place.watch.ledger_fault):
                    misses.append(f"the ledger: {fault}")
    print(f"{(time.monotonic() - began) / 60:.0f} minutes")
    for miss in misses:
        print(f"MISSED {miss}")
    return not misses


def main() -> None:
    options = parser(__doc__)
    options.add_argument("attackers", nargs="*", metavar="ATTACKER")
    options.add_argument("--all", action="store_true", help="every attacker")
    options.add_argument("--seconds", type=float, default=30.0, help="alone, and beside each")
    options.add_argument("--soak", type=float, metavar="MINUTES", help="all attackers at once")
    options.add_argument("--output", help="file for the table")
    arguments = options.parse_args()
    if unknown := set(arguments.attackers) - set(ATTACKS):
        options.error(f"no attacker is called {', '.join(sorted(unknown))}")
    if arguments.attackers or arguments.all or arguments.soak:
        print(hardware())
        sys.exit(not asyncio.run(run(arguments)))
    for attack in ATTACKS.values():
        print(f"{attack.name:28} {attack.text}")
