"""A soak test of mixed use of both sockets on a running service: memory and errors.

python -m benchmarks.sockets soak [--minutes 30]
"""

import asyncio
import base64
import io
import json
import random
import statistics
import time
import wave
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from benchmarks.harness.report import begin, parser
from benchmarks.harness.service import (
    Service,
    add_credit,
    resident_bytes,
    running_service,
    upgrade_plan,
    voice_id,
)
from benchmarks.harness.tts_socket import SocketError, socket_url, tts_socket, until
from models.audio import encode_g711, pcm16_to_float, resample

TEXTS = (
    "Good morning. How can I help you today?",
    "Your order left our warehouse yesterday and it should arrive on Friday.",
    "Please hold the line. I will look that up for you, and it only takes a moment.",
)
FRAME_S = 0.06  # of telephony
FRAME_BYTES = 480
MU_LAW_SILENCE = b"\xff"
SAMPLE_EACH_S = 30.0
LEAST_SAMPLES = 8  # for a slope
CLIENTS = ("speak", "speak", "speak_and_vanish", "listen", "listen", "listen_and_vanish")
Points = Sequence[tuple[float, int]]
"""Minutes, and bytes."""


@dataclass(slots=True)
class Soak:
    """Clients of every kind, each in a loop until `until`."""

    service: Service
    voices: list[str]
    utterance: bytes  # mu-law 8 kHz
    until: float  # time.monotonic()
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    counts: Counter[str] = field(default_factory=Counter)

    async def repeat(self, name: str) -> None:
        """Run one kind of client in a loop; count sessions and errors instead of raising."""
        session = getattr(self, name)
        while time.monotonic() < self.until:
            try:
                async with asyncio.timeout(120):
                    await session()
                self.counts[name] += 1
            except (SocketError, ConnectionClosed, OSError) as error:
                self.counts[f"{name}: {type(error).__name__} {error}"[:100]] += 1
                await asyncio.sleep(1)

    async def speak(self) -> None:
        """Two flushes, then the context is closed in good order."""
        voice = self.chance.choice(self.voices)
        async with tts_socket(self.service.url, self.service.key, voice) as socket:
            for text in self.chance.sample(TEXTS, 2):
                flush = await socket.speak(text)
                await asyncio.sleep(flush.audio_s * 0.5)
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
        async with self._listening() as connection:
            while not (await until_type(connection, "transcription"))["is_final"]:
                pass
            await connection.send(json.dumps({"type": "stop"}))
            await until_type(connection, "session_stopped")

    async def listen_and_vanish(self) -> None:
        async with self._listening() as connection:
            await asyncio.sleep(1 + 3 * self.chance.random())
            connection.transport.abort()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[ClientConnection]:
        """An STT session to which the utterance is sent in real time, and then 3 s of silence."""
        url = socket_url(self.service.url, "/ws/stt", self.service.key)
        async with connect(url, compression=None, max_size=None, close_timeout=1) as connection:
            await until_type(connection, "connection_established")
            config = {"continuous_mode": True}
            start = {"type": "start", "languages": ["en"], "config": config}
            await connection.send(json.dumps(start))
            await until_type(connection, "connected")
            speaking = asyncio.create_task(self._send_utterance(connection))
            try:
                yield connection
            finally:
                speaking.cancel()

    async def _send_utterance(self, connection: ClientConnection) -> None:
        audio = self.utterance + MU_LAW_SILENCE * 8000 * 3
        began = time.monotonic()
        for number, start in enumerate(range(0, len(audio), FRAME_BYTES)):
            await until(began + number * FRAME_S)
            await connection.send(audio[start : start + FRAME_BYTES])


async def until_type(connection: ClientConnection, wanted: str) -> dict[str, Any]:
    """The next message of a type. Raises SocketError for an error."""
    while True:
        message: dict[str, Any] = json.loads(await connection.recv())
        kind = message.get("type") or next(iter(message))
        if kind == wanted:
            return message
        if kind == "error":
            raise SocketError(message["error"])


def spoken(service: Service) -> bytes:
    """A sentence synthesised by the service, as mu-law at 8 kHz."""
    answer = httpx.post(
        f"{service.url}/tts-synthesize",
        json={"text": TEXTS[1], "output_format": "wav"},
        headers={"Authorization": f"Bearer {service.key}"},
        timeout=60,
    )
    audio = base64.b64decode(answer.raise_for_status().json()["audio_base64"])
    with wave.open(io.BytesIO(audio)) as file:
        pcm = pcm16_to_float(file.readframes(file.getnframes()))
        return encode_g711(resample(pcm, file.getframerate(), 8000), "mulaw")


async def soak(service: Service, minutes: float) -> None:
    """Mixed use for `minutes`; print the growth of memory after the first quarter."""
    voices = [
        voice_id(service.url, service.key, tier) for tier in ("Fast", "Fast", "Fast", "Quality")
    ]
    run = Soak(service, voices, spoken(service), time.monotonic() + minutes * 60)
    tasks = [asyncio.create_task(run.repeat(name)) for name in CLIENTS]
    samples: list[tuple[float, dict[str, int]]] = []
    began = time.monotonic()
    while time.monotonic() < run.until:
        minute = (time.monotonic() - began) / 60
        sizes = resident_bytes(service.pid)
        samples.append((minute, sizes))
        print(f"  {minute:5.1f} min  {sum(sizes.values()) / 1e6:7.0f} MB  {dict(run.counts)}")
        await asyncio.sleep(min(SAMPLE_EACH_S, max(0.0, run.until - time.monotonic())))
    await asyncio.gather(*tasks)
    settled = [sample for sample in samples if sample[0] >= minutes / 4]
    print(f"soak of {minutes:g} minutes: {dict(run.counts)}")
    if len(settled) < LEAST_SAMPLES:
        print("too short for a slope")
        return
    print("  MB in the first quarter of the samples, in the last, and growth in MB a minute,")
    print("  after the first quarter of the minutes:")
    report_growth("all", [(minute, sum(sizes.values())) for minute, sizes in settled])
    largest_first = sorted(settled[-1][1].items(), key=lambda item: -item[1])
    for title, _ in largest_first:
        pid = title.partition(" ")[0]  # Ray changes the rest of a worker's title with its task
        points = [
            (minute, size)
            for minute, sizes in settled
            for name, size in sizes.items()
            if name.partition(" ")[0] == pid
        ]
        if len(points) >= LEAST_SAMPLES:
            report_growth(title, points)


def report_growth(name: str, points: Points) -> None:
    quarter = len(points) // 4
    first = statistics.fmean(size for _, size in points[:quarter])
    last = statistics.fmean(size for _, size in points[-quarter:])
    slope = statistics.linear_regression(*zip(*points, strict=True)).slope
    print(f"  {first / 1e6:6.0f} {last / 1e6:6.0f} {slope / 1e6:+7.2f}  {name}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("parts", nargs="*", help="soak, the only part")
    options.add_argument("--minutes", type=float, default=3, help="duration of the soak")
    arguments = begin(options)
    with running_service() as service:
        upgrade_plan(service)
        add_credit(service, 1000)
        asyncio.run(soak(service, arguments.minutes))


if __name__ == "__main__":
    main()
