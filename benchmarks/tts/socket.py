"""Speech over `/ws/tts` of a running service: first audio, underruns under load, disconnects.

python -m benchmarks.tts.socket [first] [load] [leave] [--base-url URL --key KEY]

Arrivals are open loop: a late answer delays no other request. The service is on this machine.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.report import begin, parser, percentile, verdict
from benchmarks.harness.service import add_service_options, chosen_service, voice_id
from benchmarks.harness.speech import english_voice, voices
from benchmarks.harness.tts_socket import Flush, TTSSocket, tts_socket, until
from models.tts.base import SynthesisRequest

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
STARTS_S = 3.0  # within which the voices of a load begin
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
    target_p95_ms: float
    interval_s: float  # between requests when the first audio is measured
    speakers: int  # concurrent sockets that speak without underruns


TIERS = (
    Tier("Fast", "tts/hibari", "TTSFast", 40, 100, 0.25, 40),
    Tier("Quality", "tts/kokoro", "TTSQuality", 350, float("inf"), 2.5, 4),
)


def long_text(characters: int) -> str:
    whole = " ".join(sentence.rstrip(".") + "." for sentence in SENTENCES) + " "
    return (whole * (characters // len(whole) + 1))[:characters]


def bare_first_ms(tier: Tier, rounds: int) -> float:
    """The median time to the first chunk of the engine in this process, after a warm-up."""
    engine, _ = voices(tier.config)
    times_ms = []
    for number in range(rounds + 3):
        text = SENTENCES[number % len(SENTENCES)]
        began = time.perf_counter()
        speech = engine.synthesize(SynthesisRequest(text, english_voice(tier.config), "en"))
        next(chunk for chunk in speech if len(chunk.pcm))  # an empty chunk only reports progress
        times_ms.append((time.perf_counter() - began) * 1000)
        speech.close()
    return statistics.median(times_ms[3:])


async def first_audio(url: str, key: str, tier: Tier, rounds: int) -> None:
    """Latency of the first audio on a warm socket, of short texts and of the longest."""
    medians = {}
    bare_ms = await asyncio.to_thread(bare_first_ms, tier, rounds)
    for characters in (50, LONG_CHARACTERS):
        times_ms = await open_loop(url, key, tier, characters, rounds)
        p50_ms = statistics.median(times_ms)
        p95_ms = percentile(times_ms, 95)
        met = p50_ms <= tier.target_p50_ms and p95_ms <= tier.target_p95_ms
        print(
            f"{tier.name}, {characters} characters: first audio p50 {p50_ms:.1f} ms, "
            f"p95 {p95_ms:.1f} ms, {p50_ms / bare_ms:.2f} x the bare engine's first chunk "
            f"({bare_ms:.1f} ms); target p50 {tier.target_p50_ms:g} ms, "
            f"p95 {tier.target_p95_ms:g} ms: {verdict(met)}"
        )
        medians[characters] = p50_ms
    ratio = medians[LONG_CHARACTERS] / medians[50]
    print(f"{tier.name}: {LONG_CHARACTERS} / 50 characters {ratio:.2f} (target 1.3)")


async def open_loop(url: str, key: str, tier: Tier, characters: int, rounds: int) -> list[float]:
    """First audio in ms of each request; sockets are warm and have received their text."""
    voice = voice_id(url, key, tier.name)
    begin_at = time.monotonic() + 2.0

    async def request(number: int) -> float:
        moment = begin_at + number * tier.interval_s
        await until(moment - 1.5)
        async with tts_socket(url, key, voice) as socket:
            await socket.speak("Yes.")
            sentence = SENTENCES[number % len(SENTENCES)]
            text = sentence if characters == len(sentence) else long_text(characters)
            await socket.send("send_text", text=text)
            await until(moment)
            flush = await socket.first_audio(moment)
            socket.vanish()
            return flush.first_ms

    return await asyncio.gather(*(request(number) for number in range(rounds)))


async def listen_at_once(url: str, key: str, tier: Tier, count: int, seconds: float) -> list[Flush]:
    """What the players of as many sockets receive in `seconds` from their first audio on."""
    voice = voice_id(url, key, tier.name)
    text = long_text(round(seconds * FASTEST_CHARACTERS_PER_S))
    chance = random.Random(1)
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(tts_socket(url, key, voice)) for _ in range(count)
        ]
        begin_at = time.monotonic() + 1.0

        async def play(socket: TTSSocket) -> Flush:
            moment = begin_at + chance.random() * STARTS_S
            await socket.send("send_text", text=text)
            await until(moment)
            return await socket.speak(asked=moment, seconds=seconds)

        flushes = await asyncio.gather(*map(play, sockets))
        for socket in sockets:
            socket.vanish()
    return flushes


async def speak_at_once(url: str, key: str, tier: Tier, seconds: float) -> None:
    """Concurrent speech for `seconds`; an underrun is a player with an empty buffer."""
    flushes = await listen_at_once(url, key, tier, tier.speakers, seconds)
    gaps_s = [gap_s for flush in flushes for gap_s in flush.gaps_s]
    firsts_ms = [flush.first_ms for flush in flushes]
    audio_s = sum(flush.audio_s for flush in flushes)
    span_s = max(flush.done for flush in flushes) - min(flush.asked for flush in flushes)
    print(
        f"{tier.name}, {tier.speakers} sockets speaking for {seconds:g} s at once: "
        f"{len(gaps_s)} underruns in {sum(bool(flush.gaps_s) for flush in flushes)} sockets, "
        f"{sum(gaps_s):.2f} s in all, longest {max(gaps_s, default=0) * 1000:.0f} ms "
        f"(target none); first audio p50 {statistics.median(firsts_ms):.0f} ms, "
        f"p95 {percentile(firsts_ms, 95):.0f} ms; {audio_s / span_s:.1f} s of audio a second"
    )


def replica_pid(deployment: str) -> int:
    """The process id of a model's replica, by the title that Ray gives it."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if command.startswith(b"ray::") and deployment.encode() in command.partition(b"\0")[0]:
                pids.append(int(entry.name))
    if len(pids) != 1:
        raise SystemExit(f"{len(pids)} processes of {deployment}; the service must be local")
    return pids[0]


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
    """Sample a process; return the times at which it had been busy."""
    moments = []
    before_s = cpu_s(pid)
    at = time.monotonic()
    while at < until:
        time.sleep(sample_s)
        now = time.monotonic()
        used_s = cpu_s(pid)
        if used_s - before_s > BUSY * (now - at):
            moments.append(now)
        before_s = used_s
        at = now
    return moments


def wait_until_idle(pid: int) -> None:
    """Wait until a replica that has just started ends its warm-up, which serves no client.

    Its samples are long, so that the answer to a health check does not look like a warm-up.
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


async def leave(url: str, key: str, tier: Tier, rounds: int) -> None:
    """How long a replica continues for a client that disconnected soon after its first audio."""
    voice = voice_id(url, key, tier.name)
    pid = replica_pid(tier.deployment)
    chance = random.Random(0)
    times_ms = []
    await asyncio.to_thread(wait_until_idle, pid)
    for _ in range(rounds):
        async with tts_socket(url, key, voice) as socket:
            await socket.send("send_text", text=long_text(2000))
            end = time.monotonic() + 3
            watching = asyncio.create_task(asyncio.to_thread(busy_moments, pid, end))
            await socket.first_audio()
            await asyncio.sleep(chance.random())
            left = time.monotonic()
            socket.vanish()
            worked_s = worked_on_s(await watching, left)
            if worked_s is not None:
                times_ms.append(worked_s * 1000)
        await asyncio.sleep(0.2)
    if not times_ms:
        print(f"{tier.name}: the replica was idle at every disconnect")
        return
    print(
        f"{tier.name}: in {len(times_ms)} of {rounds} rounds the replica was busy, and continued "
        f"for p50 {statistics.median(times_ms):.0f} ms, p95 {percentile(times_ms, 95):.0f} ms, "
        f"longest {max(times_ms):.0f} ms after the disconnect "
        f"(target 100 ms: {verdict(max(times_ms) <= 100)})"
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("parts", nargs="*", help="first, load, leave; all by default")
    add_service_options(options)
    options.add_argument("--tier", choices=[tier.name for tier in TIERS])
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--seconds", type=float, default=60, help="of speech under load")
    arguments = begin(options, "ray", "onnxruntime", "uvicorn", "websockets")
    with chosen_service(arguments) as (url, key):
        for part in arguments.parts or PARTS:
            for tier in TIERS:
                if arguments.tier in (None, tier.name):
                    asyncio.run(PARTS[part](url, key, tier, arguments))


PARTS: dict[str, Callable[[str, str, Tier, argparse.Namespace], Coroutine[Any, Any, None]]] = {
    "first": lambda url, key, tier, given: first_audio(url, key, tier, given.rounds),
    "load": lambda url, key, tier, given: speak_at_once(url, key, tier, given.seconds),
    "leave": lambda url, key, tier, given: leave(url, key, tier, max(5, given.rounds // 3)),
}


if __name__ == "__main__":
    main()
