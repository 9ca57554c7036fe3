"""Speech over `/ws/tts` of a running service: first audio, underruns under load, disconnects.

python -m benchmarks.tts.socket [first] [load] [leave] [--base-url URL --key KEY]

Arrivals are open loop: a late answer delays no other request.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.hardware import hardware, versions
from benchmarks.service import running_service, upgrade_plan
from benchmarks.tts.client import Heard, TTSSocket, tts_socket, until
from configs.settings import weights_dir
from models.registry import TTS, load_model
from models.tts.base import SynthesisRequest
from models.weights.store import WeightStore

SENTENCES = (  # of 50 characters each
    "The train to the coast leaves at nine this morning",
    "She put the old letters back in the wooden drawer.",
    "Please call me again tomorrow when you have a time",
    "Rain fell on the quiet town all through the night.",
    "We could walk down to the harbour and look around.",
    "He has never told anyone what he saw on that road.",
)
LONG_CHARACTERS = 50_000
FASTEST_CHARACTERS_PER_S = 22  # faster than any voice speaks
BUSY = 0.3  # of a core; a replica that uses less counts as idle
SAMPLE_S = 0.005
IDLE_S = 0.05  # without work: the previous work has ended
QUIET_S = 3.0  # without work: the warm-up has ended
WARM_UP_S = 180.0  # at most


@dataclass(frozen=True, slots=True)
class Tier:
    """A default voice model, its load and its targets."""

    name: str
    config: str  # of the bare engine
    deployment: str
    target_p50_ms: float
    target_p95_ms: float | None
    interval_s: float  # between requests when the first audio is measured
    speakers: int  # concurrent sockets that speak without underruns


TIERS = (
    Tier("Fast", "tts/hibari", "TTSFast", 40, 100, 0.25, 40),
    Tier("Quality", "tts/kokoro", "TTSQuality", 350, None, 2.5, 4),
)


@dataclass(frozen=True, slots=True)
class Target:
    """The service that is measured."""

    url: str
    key: str

    def voice_id(self, tier: Tier) -> str:
        """An English default voice of the tier."""
        answer = httpx.get(
            f"{self.url}/default-voices", headers={"Authorization": f"Bearer {self.key}"}
        )
        answer.raise_for_status()
        return next(
            str(voice["voice_id"])
            for voice in answer.json()["data"]
            if voice["model"].endswith(tier.name) and voice["labels"]["language"] == "en"
        )


def long_text(characters: int) -> str:
    whole = " ".join(sentence.rstrip(".") + "." for sentence in SENTENCES) + " "
    return (whole * (characters // len(whole) + 1))[:characters]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def bare_first_ms(tier: Tier, rounds: int) -> list[float]:
    """The first chunk of the engine in this process, after a warm-up."""
    engine, info = load_model(TTS, tier.config, WeightStore(weights_dir()))
    voice = next(voice for voice in info.voices if voice.language == "en")
    times = []
    for number in range(rounds + 3):
        request = SynthesisRequest(SENTENCES[number % len(SENTENCES)], voice.key, "en")
        began = time.perf_counter()
        speech = engine.synthesize(request)
        next(chunk for chunk in speech if len(chunk.pcm))  # an empty chunk only reports progress
        times.append((time.perf_counter() - began) * 1000)
        speech.close()
    return times[3:]


async def first_audio(target: Target, tier: Tier, rounds: int) -> None:
    """Latency of the first audio on a warm socket, of short texts and of the longest."""
    voice_id = target.voice_id(tier)
    medians = {}
    bare_ms = await asyncio.to_thread(bare_first_ms, tier, rounds)
    for characters in (50, LONG_CHARACTERS):
        times = await open_loop(target, tier, voice_id, characters, rounds)
        medians[characters] = statistics.median(times)
        p95 = percentile(times, 0.95)
        met = medians[characters] <= tier.target_p50_ms and p95 <= (tier.target_p95_ms or p95)
        print(
            f"{tier.name}, {characters} characters: first audio p50 {medians[characters]:.1f} ms, "
            f"p95 {p95:.1f} ms, {medians[characters] / statistics.median(bare_ms):.2f} x the bare "
            f"engine's first chunk ({statistics.median(bare_ms):.1f} ms); "
            f"target p50 {tier.target_p50_ms:g} ms"
            + (f", p95 {tier.target_p95_ms:g} ms" if tier.target_p95_ms else "")
            + f": {'met' if met else 'missed'}"
        )
    ratio = medians[LONG_CHARACTERS] / medians[50]
    print(f"{tier.name}: {LONG_CHARACTERS} / 50 characters {ratio:.2f} (target 1.3)")


async def open_loop(
    target: Target, tier: Tier, voice_id: str, characters: int, rounds: int
) -> list[float]:
    """First audio in ms of each request; sockets are warm and have received their text."""
    begin = time.monotonic() + 2.0

    async def one(number: int) -> float:
        moment = begin + number * tier.interval_s
        await until(moment - 1.5)
        async with tts_socket(target.url, target.key, voice_id) as socket:
            await socket.speak("Yes.")
            sentence = SENTENCES[number % len(SENTENCES)]
            text = sentence if characters == len(sentence) else long_text(characters)
            await socket.send("send_text", text=text)
            await until(moment)
            heard = await socket.first_audio(moment)
            socket.vanish()
            return heard.first_ms

    return await asyncio.gather(*(one(number) for number in range(rounds)))


async def at_once(target: Target, tier: Tier, seconds: float) -> None:
    """Concurrent speech for `seconds`; an underrun is a player with an empty buffer."""
    voice_id = target.voice_id(tier)
    text = long_text(round(seconds * FASTEST_CHARACTERS_PER_S))
    chance = random.Random(1)
    begin = time.monotonic() + 3.0
    async with AsyncExitStack() as stack:
        sockets: list[TTSSocket] = []
        for _ in range(tier.speakers):
            sockets.append(
                await stack.enter_async_context(tts_socket(target.url, target.key, voice_id))
            )

        async def one(socket: TTSSocket) -> Heard:
            moment = begin + chance.random() * 3
            await socket.send("send_text", text=text)
            await until(moment)
            return await listened(socket, moment, seconds)

        heard = await asyncio.gather(*(one(socket) for socket in sockets))
        for socket in sockets:
            socket.vanish()
    gaps = [gap for listener in heard for gap in listener.gaps_s]
    first = [listener.first_ms for listener in heard]
    spoken = sum(listener.audio_s for listener in heard)
    wall = max(listener.done for listener in heard) - begin
    print(
        f"{tier.name}, {tier.speakers} sockets speaking for {seconds:g} s at once: "
        f"{len(gaps)} underruns in {sum(bool(listener.gaps_s) for listener in heard)} sockets, "
        f"{sum(gaps):.2f} s in all, longest {max(gaps, default=0) * 1000:.0f} ms (target none); "
        f"first audio p50 {statistics.median(first):.0f} ms, p95 {percentile(first, 0.95):.0f} ms; "
        f"{spoken / wall:.1f} s of audio a second"
    )


async def listened(socket: TTSSocket, asked: float, seconds: float) -> Heard:
    """What a player receives in `seconds` from its first audio on."""
    heard = Heard(asked)
    await socket.send("flush_context")
    async for chunk_s in socket.chunks():
        heard.take(chunk_s)
        if time.monotonic() - heard.first > seconds:
            break
        if heard.audio_s > seconds:  # the rest would be played after the measurement
            break
    heard.done = time.monotonic()
    return heard


def replica_pid(deployment: str) -> int:
    """The process id of a model's replica, by the title that Ray gives it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"ray::") and deployment.encode() in command.partition(b"\0")[0]:
                found.append(int(entry.name))
    if len(found) != 1:
        raise SystemExit(f"{len(found)} processes of {deployment}; the service must be local")
    return found[0]


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads so far, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            continue  # the thread has ended
    return total / 1e9


def busy_moments(pid: int, until: float, sample_s: float = SAMPLE_S) -> list[float]:
    """Samples a process; returns the times at which it had been busy."""
    moments = []
    before, at = cpu_s(pid), time.monotonic()
    while at < until:
        time.sleep(sample_s)
        now, used = time.monotonic(), cpu_s(pid)
        if used - before > BUSY * (now - at):
            moments.append(now)
        before, at = used, now
    return moments


def wait_until_idle(pid: int) -> None:
    """Waits until a replica that has just started ends its warm-up, which serves no client.

    By samples long enough for the answer to a health check, which is no warm-up.
    """
    until = time.monotonic() + WARM_UP_S
    while time.monotonic() < until and busy_moments(pid, time.monotonic() + QUIET_S, QUIET_S / 3):
        pass


def worked_on_s(moments: list[float], left: float) -> float | None:
    """How long the work continued after the time `left`; None if the replica was idle then."""
    last = max((moment for moment in moments if moment <= left), default=0.0)
    if left - last > IDLE_S:
        return None
    for moment in sorted(moment for moment in moments if moment > left):
        if moment - last > IDLE_S:
            break  # other work, such as the answer to a health check
        last = moment
    return max(0.0, last - left)


async def leave(target: Target, tier: Tier, rounds: int) -> None:
    """How long a replica continues for a client that disconnected soon after its first audio."""
    voice_id = target.voice_id(tier)
    pid = replica_pid(tier.deployment)
    chance = random.Random(0)
    times = []
    await asyncio.to_thread(wait_until_idle, pid)
    for _ in range(rounds):
        async with tts_socket(target.url, target.key, voice_id) as socket:
            await socket.send("send_text", text=long_text(2000))
            until = time.monotonic() + 3
            watching = asyncio.create_task(asyncio.to_thread(busy_moments, pid, until))
            await socket.first_audio()
            await asyncio.sleep(chance.random())
            left = time.monotonic()
            socket.vanish()
            worked_s = worked_on_s(await watching, left)
            if worked_s is not None:
                times.append(worked_s * 1000)
        await asyncio.sleep(0.2)
    if not times:
        print(f"{tier.name}: the replica was idle at every disconnect")
        return
    print(
        f"{tier.name}: in {len(times)} of {rounds} rounds the replica was busy, and continued for "
        f"p50 {statistics.median(times):.0f} ms, p95 {np.percentile(times, 95):.0f} ms, longest "
        f"{max(times):.0f} ms after the disconnect (target 100 ms: "
        f"{'met' if max(times) <= 100 else 'missed'})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="first, load, leave; all by default")
    parser.add_argument("--base-url", help="of a service on this machine; else one is started")
    parser.add_argument("--key", help="an API key of that service, on a plan with 50 sockets")
    parser.add_argument("--tier", choices=[tier.name for tier in TIERS])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=60, help="of speech under load")
    options = parser.parse_args()
    parts = options.parts or ["first", "load", "leave"]
    measurements: dict[str, Callable[[Target, Tier], Coroutine[Any, Any, None]]] = {
        "first": lambda target, tier: first_audio(target, tier, options.rounds),
        "load": lambda target, tier: at_once(target, tier, options.seconds),
        "leave": lambda target, tier: leave(target, tier, max(5, options.rounds // 3)),
    }
    with ExitStack() as stack:
        target = Target(options.base_url, options.key)
        if not options.base_url:
            service = stack.enter_context(running_service())
            upgrade_plan(service)
            target = Target(service.url, service.key)
        for part in parts:
            for tier in TIERS:
                if options.tier in (None, tier.name):
                    asyncio.run(measurements[part](target, tier))
    print(hardware())
    print(versions("ray", "onnxruntime", "uvicorn", "websockets"))


if __name__ == "__main__":
    main()
