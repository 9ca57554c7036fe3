"""The whole service with PostgreSQL: sessions of voice agents, and voices that speak at once.

Sessions are those of benchmarks/realtime.py: users say sentences in real time and an agent answers
with the Fast voice. Core seconds are by deployment, without what the service takes at rest; the
clients run on the same cores. The turns of several sessions at once are what the simulation has to
predict (`python -m benchmarks.capacity.simulation`).
"""

import asyncio
import random
import time
from contextlib import AsyncExitStack

from sqlmodel import col, select

from benchmarks.capacity.figures import CpuTimes, Figures, quantile, rows
from benchmarks.realtime import DETECTION, SENTENCES, Turn, converse, recorded
from benchmarks.service import Service, running_service, wait_until_idle
from benchmarks.tts.client import Heard, tts_socket, until
from benchmarks.tts.socket import (
    FASTEST_CHARACTERS_PER_S,
    TIERS,
    Target,
    Tier,
    listened,
    long_text,
)
from db.accounts import Workspace
from db.billing import ledger
from db.billing.tables import LedgerEntry
from db.database import Database
from tests.plans import raise_plans
from tests.servers import postgres

AT_ONCE = (1, 2, 4)  # sessions
TURNS = 6
REST_S = 20.0
SPEAKING_S = 10.0
STARTS_S = 3.0  # within which the voices begin
LATE_S = 0.05  # a shorter underrun is the jitter of a busy client
VOICES = {"Fast": (20, 40, 60, 80), "Quality": (2, 4, 6)}
CREDIT = 10**9  # micro-USD


async def prepare(url: str) -> None:
    database = Database(url)
    workspace = await database.read(lambda session: session.exec(select(Workspace.id)).one())
    await database.run(ledger.change_credit, workspace, "benchmark", CREDIT, "operator")
    database.close()


async def charges(url: str) -> int:
    return await rows(url, col(LedgerEntry.kind) == "capture")


def stages(turns: list[Turn]) -> Figures:
    """Milliseconds from the last voiced sound of the user, of the turns that were answered."""
    heard = [turn for turn in turns if turn.spoken and turn.created]
    of = {
        "end_of_turn": [turn.stopped - turn.last_voiced for turn in heard],
        "text": [turn.text - turn.last_voiced for turn in heard if turn.text],
        "response": [turn.created - turn.last_voiced for turn in heard],
        "sound": [turn.spoken - turn.last_voiced for turn in heard],
    }
    figures: Figures = {"turns": len(turns), "answered": len(heard)}
    for name, values in of.items():
        figures[f"{name}_p50_ms"] = quantile(values, 0.5) * 1000
        figures[f"{name}_p95_ms"] = quantile(values, 0.95) * 1000
    figures["answer_audio_s"] = sum(turn.audio_s for turn in heard) / max(len(heard), 1)
    figures["turns_with_gaps"] = sum(turn.gaps_s > LATE_S for turn in heard)
    return figures


async def converse_at_once(
    service: Service, sessions: int, said: list[list[bytes]], rest: dict[str, float], url: str
) -> Figures:
    """So many sessions, which begin apart; their turns, core seconds and charges."""
    address = f"ws{service.url.removeprefix('http')}"
    before = await charges(url)
    cpu, began = CpuTimes(service=service.pid), time.monotonic()

    async def one(number: int) -> tuple[list[Turn], list[str]]:
        await asyncio.sleep(1.7 * number)
        sentences = [said[(number + turn) % len(said)] for turn in range(TURNS)]
        detection = DETECTION["semantic_vad"]
        return await converse(address, service.key, "Fast", detection, sentences)

    done = await asyncio.gather(*(one(number) for number in range(sessions)))
    span_s, used = time.monotonic() - began, cpu.used_by_deployment("service")
    turns = [turn for some, _ in done for turn in some]
    figures = {"sessions": sessions, "span_s": span_s, **stages(turns)}
    figures["errors"] = [error for _, some in done for error in some][:3]
    busy = {name: used[name] - rest.get(name, 0.0) * span_s for name in used}
    figures["cpu_s_per_turn"] = {name: max(s, 0.0) / len(turns) for name, s in busy.items()}
    await asyncio.sleep(3)  # charges of ended sessions are settled in the background
    figures["charges_per_turn"] = (await charges(url) - before) / len(turns)
    return figures


async def voices_at_once(service: Service, tier: Tier, count: int) -> Figures:
    """So many sockets of `/ws/tts` that speak and are played in real time."""
    target = Target(service.url, service.key)
    voice_id = target.voice_id(tier)
    text = long_text(round(SPEAKING_S * FASTEST_CHARACTERS_PER_S))
    chance = random.Random(1)
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(tts_socket(service.url, service.key, voice_id))
            for _ in range(count)
        ]
        begin = time.monotonic() + 1.0
        cpu = CpuTimes(service=service.pid)

        async def one(number: int) -> Heard:
            moment = begin + chance.random() * STARTS_S
            await sockets[number].send("send_text", text=text)
            await until(moment)
            return await listened(sockets[number], moment, SPEAKING_S)

        heard = await asyncio.gather(*(one(number) for number in range(count)))
        used = cpu.used_by_deployment("service")
        for socket in sockets:
            socket.vanish()
    gaps = [gap for one in heard for gap in one.gaps_s if gap > LATE_S]
    audio_s = sum(one.audio_s for one in heard)
    return {
        "voices": count,
        "gaps": len(gaps),
        "longest_gap_s": max(gaps, default=0.0),
        "first_p50_ms": quantile([one.first_ms for one in heard], 0.5),
        "first_p95_ms": quantile([one.first_ms for one in heard], 0.95),
        "replica_cpu_s_per_audio_s": used.get(tier.deployment, 0.0) / audio_s,
        "gateway_cpu_s_per_audio_s": used.get("Gateway", 0.0) / audio_s,
    }


def measure() -> Figures:
    figures: Figures = {"sessions": {}, "voices": {}}
    with postgres(fsync=True) as database:
        with running_service(variables={"DATABASE_URL": database.url}) as service:
            raise_plans(database.url)
            asyncio.run(prepare(database.url))
            wait_until_idle()
            cpu = CpuTimes(service=service.pid)
            time.sleep(REST_S)
            rest = {n: s / REST_S for n, s in cpu.used_by_deployment("service").items()}
            figures["rest_cores"] = rest
            said = [recorded(service.url, service.key, text) for text in SENTENCES[:4]]
            address = f"ws{service.url.removeprefix('http')}"
            warm = converse(address, service.key, "Fast", DETECTION["semantic_vad"], said[:1])
            asyncio.run(warm)
            for count in AT_ONCE:
                work = converse_at_once(service, count, said, rest, database.url)
                figures["sessions"][str(count)] = asyncio.run(work)
                print(figures["sessions"][str(count)], flush=True)
            for tier in TIERS:
                most = 0
                for count in VOICES[tier.name]:
                    step = asyncio.run(voices_at_once(service, tier, count))
                    print(tier.name, step, flush=True)
                    figures["voices"][f"{tier.name}_{count}"] = step
                    if step["gaps"]:
                        break
                    most = count
                figures["voices"][f"{tier.name}_without_gaps"] = most
    return figures
