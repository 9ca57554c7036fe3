"""Many sockets on a running service: the memory of idle ones, and a soak test of mixed use.

python -m benchmarks.sockets [idle] [soak] [--minutes 30]
"""

import argparse
import asyncio
import base64
import io
import json
import random
import statistics
import time
import wave
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.hardware import hardware
from benchmarks.service import (
    Service,
    add_credit,
    resident_bytes,
    running_service,
    upgrade_plan,
)
from benchmarks.tts.client import SocketError, socket_url, tts_socket
from models.audio import AudioChunk, pcm16_to_float
from pipelines.audio.encode.formats import open_encoder

IDLE_EACH = 250  # sockets of each kind, TTS and STT
IDLE_TARGET_BYTES = 400e6
WORTH_A_LINE_BYTES = 4e6
TEXTS = (
    "Good morning. How can I help you today?",
    "Your order left our warehouse yesterday and it should arrive on Friday.",
    "Please hold the line. I will look that up for you, and it only takes a moment.",
)
FRAME_S = 0.06  # of telephony
FRAME_BYTES = 480
MU_LAW_SILENCE = b"\xff"
SAMPLE_EACH_S = 30.0


def total(sizes: dict[str, int]) -> int:
    return sum(sizes.values())


def process_of(name: str) -> str:
    """The process id in `name`: Ray changes the rest of a worker's title with its task."""
    return name.partition(" ")[0]


def by_process(sizes: dict[str, int]) -> dict[str, int]:
    return {process_of(name): size for name, size in sizes.items()}


def voice_id(service: Service, tier: str) -> str:
    """The id of an English default voice of the model tier."""
    headers = {"Authorization": f"Bearer {service.key}"}
    answer = httpx.get(f"{service.url}/default-voices", headers=headers, timeout=30)
    answer.raise_for_status()
    return next(
        str(voice["voice_id"])
        for voice in answer.json()["data"]
        if voice["model"].endswith(tier) and voice["labels"]["language"] == "en"
    )


async def listening(stack: AsyncExitStack, service: Service) -> ClientConnection:
    """A started STT session that accepts mu-law audio."""
    url = socket_url(service.url, "/ws/stt", service.key)
    connection = await stack.enter_async_context(
        connect(url, compression=None, max_size=None, close_timeout=1)
    )
    await until_type(connection, "connection_established")
    start = {"type": "start", "languages": ["en"], "config": {"continuous_mode": True}}
    await connection.send(json.dumps(start))
    await until_type(connection, "connected")
    return connection


async def until_type(connection: ClientConnection, wanted: str) -> dict[str, Any]:
    while True:
        message: dict[str, Any] = json.loads(await connection.recv())
        kind = message.get("type") or next(iter(message))
        if kind == wanted:
            return message
        if kind == "error":
            raise SocketError(message["error"])


async def idle(service: Service) -> None:
    """Memory of idle sessions; the second attempt shows memory that is never freed."""
    fast = voice_id(service, "Fast")
    await one_of_each(service, fast)
    before = resident_bytes(service.pid)
    for attempt in ("first", "second"):
        async with AsyncExitStack() as stack:
            began = time.monotonic()
            for _ in range(IDLE_EACH):
                await stack.enter_async_context(tts_socket(service.url, service.key, fast))
                await listening(stack, service)
            opened_s = time.monotonic() - began
            await asyncio.sleep(5)
            live = resident_bytes(service.pid)
        await asyncio.sleep(5)
        left = resident_bytes(service.pid)
        more = total(live) - total(before)
        print(
            f"{2 * IDLE_EACH} idle sockets, {attempt} attempt: {more / 1e6:.0f} MB more than "
            f"{total(before) / 1e6:.0f} MB (target {IDLE_TARGET_BYTES / 1e6:.0f} MB more: "
            f"{'met' if more <= IDLE_TARGET_BYTES else 'missed'}), "
            f"{(total(left) - total(before)) / 1e6:.0f} MB more after they closed; "
            f"{2 * IDLE_EACH / opened_s:.0f} opened a second"
        )
        size_before = by_process(before)
        for name, size in sorted(live.items(), key=lambda item: -item[1]):
            grown = size - size_before.get(process_of(name), 0)
            if grown > WORTH_A_LINE_BYTES:
                print(f"  {grown / 1e6:+5.0f} MB  {name}")


async def one_of_each(service: Service, voice: str) -> None:
    """Opens one session of each kind, so that what it loads is not counted as memory of sockets."""
    async with AsyncExitStack() as stack:
        socket = await stack.enter_async_context(tts_socket(service.url, service.key, voice))
        await socket.speak(TEXTS[0])
        await listening(stack, service)


@dataclass(slots=True)
class Soak:
    """A soak test: clients of every kind run concurrently, each in a loop until `until`."""

    service: Service
    voices: list[str]
    utterance: bytes  # mu-law 8 kHz
    until: float  # time.monotonic()
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    did: Counter[str] = field(default_factory=Counter)

    async def repeat(self, name: str) -> None:
        """Runs one kind of client in a loop; counts sessions and errors instead of raising."""
        session = getattr(self, name)
        while time.monotonic() < self.until:
            try:
                async with asyncio.timeout(120):
                    await session()
                self.did[name] += 1
            except (SocketError, ConnectionClosed, OSError) as error:
                self.did[f"{name}: {type(error).__name__} {error}"[:100]] += 1
                await asyncio.sleep(1)

    async def speak(self) -> None:
        """Two flushes, then the context is closed in good order."""
        voice = self.chance.choice(self.voices)
        async with tts_socket(self.service.url, self.service.key, voice) as socket:
            for text in self.chance.sample(TEXTS, 2):
                heard = await socket.speak(text)
                await asyncio.sleep(heard.audio_s * 0.5)
            await socket.send("close_context")
            while (await socket.receive())[0] != "context_closed":
                pass

    async def speak_and_vanish(self) -> None:
        voice = self.chance.choice(self.voices)
        async with tts_socket(self.service.url, self.service.key, voice) as socket:
            await socket.send("send_text", text=" ".join(TEXTS) * 20)
            await socket.first_audio()
            await asyncio.sleep(self.chance.random())
            socket.vanish()

    async def listen(self) -> None:
        """An utterance in real time until its final, then a stop and the session's summary."""
        async with AsyncExitStack() as stack:
            connection = await listening(stack, self.service)
            speaking = asyncio.create_task(self._send_utterance(connection))
            try:
                while not (await until_type(connection, "transcription"))["is_final"]:
                    pass
            finally:
                speaking.cancel()
            await connection.send(json.dumps({"type": "stop"}))
            await until_type(connection, "session_stopped")

    async def listen_and_vanish(self) -> None:
        async with AsyncExitStack() as stack:
            connection = await listening(stack, self.service)
            speaking = asyncio.create_task(self._send_utterance(connection))
            await asyncio.sleep(1 + 3 * self.chance.random())
            speaking.cancel()
            connection.transport.abort()

    async def _send_utterance(self, connection: ClientConnection) -> None:
        """Sends the utterance and then 3 s of silence in real time."""
        silence = MU_LAW_SILENCE * round(8000 * 3)
        audio = self.utterance + silence
        begin = time.monotonic()
        for number, start in enumerate(range(0, len(audio), FRAME_BYTES)):
            await asyncio.sleep(max(0.0, begin + number * FRAME_S - time.monotonic()))
            await connection.send(audio[start : start + FRAME_BYTES])


def spoken(service: Service) -> bytes:
    """A sentence synthesised by the service, as mu-law at 8 kHz."""
    answer = httpx.post(
        f"{service.url}/tts-synthesize",
        json={"text": TEXTS[1], "output_format": "wav"},
        headers={"Authorization": f"Bearer {service.key}"},
        timeout=60,
    )
    answer.raise_for_status()
    with wave.open(io.BytesIO(base64.b64decode(answer.json()["audio_base64"]))) as file:
        pcm = pcm16_to_float(file.readframes(file.getnframes()))
        sample_rate = file.getframerate()
    encoder = open_encoder("mulaw", 8000)
    return b"".join([*encoder.encode(AudioChunk(pcm, sample_rate)), *encoder.flush()])


async def soak(service: Service, minutes: float) -> None:
    """Mixed use for `minutes`; prints the memory growth after the first quarter."""
    utterance = spoken(service)
    voices = [voice_id(service, tier) for tier in ("Fast", "Fast", "Fast", "Quality")]
    run = Soak(service, voices, utterance, time.monotonic() + minutes * 60)
    clients = ["speak", "speak", "speak_and_vanish", "listen", "listen", "listen_and_vanish"]
    tasks = [asyncio.create_task(run.repeat(name)) for name in clients]
    samples: list[tuple[float, dict[str, int]]] = []
    began = time.monotonic()
    while time.monotonic() < run.until:
        samples.append(((time.monotonic() - began) / 60, resident_bytes(service.pid)))
        minute, sizes = samples[-1]
        print(f"  {minute:5.1f} min  {total(sizes) / 1e6:7.0f} MB  {dict(run.did)}")
        await asyncio.sleep(min(SAMPLE_EACH_S, max(0.0, run.until - time.monotonic())))
    await asyncio.gather(*tasks)
    settled = [sample for sample in samples if sample[0] >= minutes / 4]
    if len(settled) < 8:
        print(f"soak of {minutes:g} minutes: {dict(run.did)}; too short for a slope")
        return
    print(f"soak of {minutes:g} minutes after the first quarter: {dict(run.did)}")
    print("  MB in the first quarter of the samples, in the last, and growth in MB a minute:")
    report_growth("all", [(minute, total(sizes)) for minute, sizes in settled])
    for name in sorted(settled[-1][1], key=lambda one: -settled[-1][1][one]):
        process = process_of(name)
        points = [
            (minute, sizes[process])
            for minute, sizes in ((minute, by_process(sizes)) for minute, sizes in settled)
            if process in sizes
        ]
        if len(points) >= 8:
            report_growth(name, points)


def report_growth(name: str, points: list[tuple[float, int]]) -> None:
    quarter = len(points) // 4
    first = statistics.fmean(size for _, size in points[:quarter])
    last = statistics.fmean(size for _, size in points[-quarter:])
    print(f"  {first / 1e6:6.0f} {last / 1e6:6.0f} {slope(points) / 1e6:+7.2f}  {name}")


def slope(points: list[tuple[float, int]]) -> float:
    """Bytes a minute, by linear regression."""
    minutes, sizes = zip(*points, strict=True)
    return statistics.linear_regression(minutes, sizes).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="idle, soak; both by default")
    parser.add_argument("--minutes", type=float, default=3, help="duration of the soak")
    options = parser.parse_args()
    print(hardware())
    with running_service() as service:
        upgrade_plan(service)
        add_credit(service, 1000)
        for part in options.parts or ["idle", "soak"]:
            asyncio.run(idle(service) if part == "idle" else soak(service, options.minutes))


if __name__ == "__main__":
    main()
