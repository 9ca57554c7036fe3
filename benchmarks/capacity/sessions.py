"""The whole service with PostgreSQL: sessions of voice agents, and voices that speak at once.

Sessions are those of benchmarks/realtime.py: users say sentences in real time and an agent answers
with the Fast voice. Core seconds are by deployment, without what the service takes at rest; the
clients run on the same cores. The turns of several sessions at once are what the simulation has to
predict (`python -m benchmarks.capacity.simulation`).
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from sqlmodel import col, select

from benchmarks.capacity.figures import Figures, count_rows
from benchmarks.harness.processes import CpuTimes
from benchmarks.harness.report import percentile
from benchmarks.harness.service import Service, running_service, wait_until_idle
from benchmarks.realtime import DETECTION, SENTENCES, Frames, Turn, converse, recorded, stages
from benchmarks.tts.socket import TIERS, Tier, listen_at_once
from db.accounts import Workspace
from db.billing import ledger
from db.billing.tables import LedgerEntry
from db.database import Database
from tests.plans import raise_plans
from tests.servers import postgres

SESSIONS = (1, 2, 4)
TURNS = 6
REST_S = 20.0
SPEAKING_S = 10.0
LATE_S = 0.05  # a shorter underrun is the jitter of a busy client
VOICES = {"Fast": (20, 40, 60, 80), "Quality": (2, 4, 6)}
CREDIT = 10**9  # micro-USD
SEMANTIC = DETECTION["semantic_vad"]
STAGES = {"end_of_turn": "end of turn", "text": "text", "response": "response", "sound": "in all"}


async def add_credit(url: str) -> None:
    database = Database(url)
    workspace = await database.read(lambda session: session.exec(select(Workspace.id)).one())
    await database.run(ledger.change_credit, workspace, "benchmark", CREDIT, "operator")
    database.close()


async def charges(url: str) -> int:
    return await count_rows(url, col(LedgerEntry.kind) == "capture")


def figures_of(turns: Sequence[Turn]) -> Figures:
    """Figures of the answered turns; times are in ms from the user's last voiced sound."""
    answered = [turn for turn in turns if turn.spoken and turn.created]
    figures: Figures = {"turns": len(turns), "answered": len(answered)}
    times_s = stages(turns)
    for name, stage in STAGES.items():
        figures[f"{name}_p50_ms"] = percentile(times_s[stage], 50) * 1000
        figures[f"{name}_p95_ms"] = percentile(times_s[stage], 95) * 1000
    figures["answer_audio_s"] = sum(turn.audio_s for turn in answered) / max(len(answered), 1)
    figures["turns_with_gaps"] = sum(turn.gaps_s > LATE_S for turn in answered)
    return figures


async def converse_at_once(
    service: Service,
    sessions: int,
    spoken: Sequence[Frames],
    rest_cores: Mapping[str, float],
    database_url: str,
) -> Figures:
    """Turns, core seconds and charges of sessions that begin 1.7 s apart."""
    before = await charges(database_url)
    cpu = CpuTimes(service=service.pid)
    began = time.monotonic()

    async def session(number: int) -> tuple[list[Turn], list[str]]:
        await asyncio.sleep(1.7 * number)
        sentences = [spoken[(number + turn) % len(spoken)] for turn in range(TURNS)]
        return await converse(service.url, service.key, "Fast", SEMANTIC, sentences)

    results = await asyncio.gather(*(session(number) for number in range(sessions)))
    span_s = time.monotonic() - began
    used_s = cpu.used_by_deployment("service")
    turns = [turn for turns, _ in results for turn in turns]
    await asyncio.sleep(3)  # charges of ended sessions are settled in the background
    return {
        "sessions": sessions,
        "span_s": span_s,
        **figures_of(turns),
        "errors": [error for _, errors in results for error in errors][:3],
        "cpu_s_per_turn": {
            name: max(s - rest_cores.get(name, 0.0) * span_s, 0.0) / len(turns)
            for name, s in used_s.items()
        },
        "charges_per_turn": (await charges(database_url) - before) / len(turns),
    }


async def voices_at_once(service: Service, tier: Tier, count: int) -> Figures:
    """Sockets of `/ws/tts` that speak at once and are played in real time."""
    cpu = CpuTimes(service=service.pid)
    flushes = await listen_at_once(service.url, service.key, tier, count, SPEAKING_S)
    used_s = cpu.used_by_deployment("service")
    gaps_s = [gap_s for flush in flushes for gap_s in flush.gaps_s if gap_s > LATE_S]
    firsts_ms = [flush.first_ms for flush in flushes]
    audio_s = sum(flush.audio_s for flush in flushes)
    return {
        "voices": count,
        "gaps": len(gaps_s),
        "longest_gap_s": max(gaps_s, default=0.0),
        "first_p50_ms": percentile(firsts_ms, 50),
        "first_p95_ms": percentile(firsts_ms, 95),
        "replica_cpu_s_per_audio_s": used_s.get(tier.deployment, 0.0) / audio_s,
        "gateway_cpu_s_per_audio_s": used_s.get("Gateway", 0.0) / audio_s,
    }


def measure() -> Figures:
    figures: Figures = {"sessions": {}, "voices": {}}
    with (
        postgres(fsync=True) as database,
        running_service(variables={"DATABASE_URL": database.url}) as service,
    ):
        raise_plans(database.url)
        asyncio.run(add_credit(database.url))
        wait_until_idle()
        cpu = CpuTimes(service=service.pid)
        time.sleep(REST_S)
        rest = {name: s / REST_S for name, s in cpu.used_by_deployment("service").items()}
        figures["rest_cores"] = rest
        spoken = [recorded(service.url, service.key, text) for text in SENTENCES[:4]]
        asyncio.run(converse(service.url, service.key, "Fast", SEMANTIC, spoken[:1]))  # warm
        for count in SESSIONS:
            work = converse_at_once(service, count, spoken, rest, database.url)
            figures["sessions"][str(count)] = asyncio.run(work)
            print(figures["sessions"][str(count)], flush=True)
        for tier in TIERS:
            figures["voices"][f"{tier.name}_without_gaps"] = 0
            for count in VOICES[tier.name]:
                step = asyncio.run(voices_at_once(service, tier, count))
                print(tier.name, step, flush=True)
                figures["voices"][f"{tier.name}_{count}"] = step
                if step["gaps"]:
                    break
                figures["voices"][f"{tier.name}_without_gaps"] = count
    return figures
