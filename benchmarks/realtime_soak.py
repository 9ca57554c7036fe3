"""Voice agents under callers that come, talk, interrupt and vanish: memory, errors and the ledger.

python -m benchmarks.realtime_soak [--minutes 30] [--callers 4]

Exit status 1 when the memory of the gateway grew by more than GROWTH after the first third, a
replica was lost, an error or a close with 1011 was counted, or the ledger is not exact at the end:
all holds are captured or released, and each charge has its entry.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benchmarks.hardware import hardware
from benchmarks.hostile.watch import Watch
from benchmarks.realtime import (
    DETECTION,
    INTERRUPTION,
    MODELS,
    SENTENCES,
    STORY,
    Caller,
    configure,
    recorded,
)
from benchmarks.service import add_credit, running_service, upgrade_plan

GROWTH = 1.15  # of the gateway's memory, from the first third to the end
SAMPLE_S = 20.0
SETTLE_S = 15.0  # until the sessions of callers that vanished have ended
PATIENCE_S = 60.0  # for an answer


@dataclass(slots=True)
class Tally:
    """What the callers did and met."""

    sessions: int = 0
    turns: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


async def call(
    url: str, key: str, speech: dict[str, list[bytes]], chance: random.Random, tally: Tally
) -> None:
    """One session, of up to five turns, with one of the ways to end it."""
    voice, detection = chance.choice(list(MODELS)), chance.choice(list(DETECTION.values()))
    model, name = MODELS[voice]
    address = f"ws{url.removeprefix('http')}/openai/v1/realtime?model={model}"
    async with connect(
        address, additional_headers={"Authorization": f"Bearer {key}"}, max_size=None
    ) as socket:
        tally.sessions += 1
        caller = Caller(socket)
        await configure(socket, name, detection)
        tasks = [
            asyncio.create_task(one) for one in (caller.speak_forever(), caller.listen_forever())
        ]
        end, deed = "closes", ""
        try:
            for _ in range(chance.randint(1, 5)):
                deed = chance.choices(["listens", "interrupts", "vanishes"], [5, 3, 1])[0]
                end = await take_turn(caller, speech, chance, deed)
                tally.turns += 1
                if end != "closes":
                    break
        except TimeoutError:
            ago_s = time.monotonic() - caller.last_audio
            tally.errors[
                f"no end of an answer to one who {deed}: {caller.turn.audio_s:.0f} s of {voice} "
                f"heard, the last {ago_s:.0f} s ago"
            ] += 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tally.ends[end] += 1
            tally.errors.update(caller.errors)
            if end != "closes":
                socket.transport.abort()


async def take_turn(
    caller: Caller, speech: dict[str, list[bytes]], chance: random.Random, deed: str
) -> str:
    """How the caller goes on."""
    caller.say(speech[STORY if deed == "interrupts" else chance.choice(SENTENCES)])
    turn = caller.turn
    async with asyncio.timeout(PATIENCE_S):
        if deed == "vanishes":
            await asyncio.sleep(chance.uniform(0, 6))
            return "vanishes"
        if deed == "interrupts":
            heard_s = chance.uniform(0.3, 2)
            while turn.audio_s < heard_s and not turn.is_done.is_set():
                await asyncio.sleep(0.02)
            caller.say(speech[INTERRUPTION])
            turn = caller.turn
        await turn.is_done.wait()
    await asyncio.sleep(min(3.0, max(0.0, turn.plays_until - time.monotonic())))
    return "closes"


async def call_forever(
    url: str, key: str, speech: dict[str, list[bytes]], seed: int, tally: Tally, until: float
) -> None:
    chance = random.Random(seed)
    while time.monotonic() < until:
        try:
            await call(url, key, speech, chance, tally)
        except (OSError, ConnectionClosed) as error:
            tally.errors[f"{type(error).__name__}: {error}"] += 1
            await asyncio.sleep(1.0)


async def soak(url: str, key: str, watch: Watch, options: argparse.Namespace, tally: Tally) -> bool:
    """Whether the memory is flat."""
    texts = [*SENTENCES, STORY, INTERRUPTION]
    speech = {text: await asyncio.to_thread(recorded, url, key, text) for text in texts}
    began = time.monotonic()
    until = began + options.minutes * 60
    callers = [
        asyncio.create_task(call_forever(url, key, speech, seed, tally, until))
        for seed in range(options.callers)
    ]
    resident: list[tuple[float, float]] = []  # of the gateway: minutes, MiB
    while (now := time.monotonic()) < until:
        resident.append(((now - began) / 60, watch.resident_bytes() / 2**20))
        with suppress(TimeoutError):
            async with asyncio.timeout(SAMPLE_S):
                await asyncio.wait(callers)
    await asyncio.gather(*callers)
    await asyncio.sleep(SETTLE_S)
    resident.append(((time.monotonic() - began) / 60, watch.resident_bytes() / 2**20))
    third = options.minutes / 3
    early = max((size for at, size in resident if at <= third), default=resident[0][1])
    print("gateway, MiB:", " ".join(f"{size:.0f}" for _, size in resident[::6]))
    print(f"most in the first third {early:.0f}, at the end {resident[-1][1]:.0f}")
    return resident[-1][1] <= early * GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--callers", type=int, default=4)
    options = parser.parse_args()
    tally = Tally()
    with running_service() as service:
        upgrade_plan(service)
        add_credit(service, 100)
        watch = Watch(service)
        before = watch.snapshot()
        is_flat = asyncio.run(soak(service.url, service.key, watch, options, tally))
        after, ledger, held = watch.snapshot(), watch.ledger_fault(), watch.held_micro_usd()
    print(f"{tally.sessions} sessions, {tally.turns} turns, {dict(tally.ends)}")
    print("errors that callers met:", json.dumps(tally.errors) if tally.errors else "none")
    lost, failures = after.lost_since(before), after.failures - before.failures
    print(
        f"replicas lost: {lost or 'none'}; failures {failures:.0f}; ledger: {ledger or 'exact'}, "
        f"{held} micro-USD held"
    )
    print(hardware())
    if lost or failures or ledger or held or not is_flat:
        sys.exit(1)


if __name__ == "__main__":
    main()
