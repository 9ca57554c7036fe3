"""The well-behaved client beside an attacker: one workspace that does one thing after another."""

import asyncio
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

import aiohttp
from websockets.exceptions import WebSocketException

from benchmarks.harness.tts_socket import SocketError, tts_socket
from benchmarks.hostile.attacker import Target
from tests.pipelines.webhooks.receivers import Receiver

PATIENCE_S = 60.0  # for one answer
PAUSE_S = 0.05
# A lower p95 is taken as this value: service and attackers share the cores of one machine, whose
# scheduler alone can delay an answer of 2 ms by 10 ms.
FLOOR_S = 0.05


class Refused(Exception):
    """The service refused or failed a request of the well-behaved client."""


@dataclass
class Latencies:
    """Seconds by kind of request, and what was refused."""

    took: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: Counter[str] = field(default_factory=Counter)

    def p95_s(self, kind: str) -> float:
        took = self.took[kind]
        if len(took) < 2:
            return max(took, default=0.0)
        return statistics.quantiles(took, n=20, method="inclusive")[18]

    def add(self, other: "Latencies") -> None:
        """Adds the measurements of another time."""
        for kind, took in other.took.items():
            self.took[kind] += took
        self.refused.update(other.refused)

    def worst_beside(self, alone: "Latencies") -> tuple[float, str]:
        """The largest ratio of the p95 to that of `alone`, and its kind."""
        ratios = [
            (max(self.p95_s(kind), FLOOR_S) / max(alone.p95_s(kind), FLOOR_S), kind)
            for kind in alone.took
            if self.took[kind]
        ]
        return max(ratios, default=(float("inf"), "every kind"))


class Bystander:
    """Speech, a stream, a socket, a transcript, a chat, a list and a webhook, again and again."""

    def __init__(self, target: Target, key: str, clip: bytes, hook: Receiver | None = None) -> None:
        self._target = target
        self._key = key
        self._clip = clip
        self._hook = hook
        self._numbers = count()
        self._latencies = Latencies()

    async def run(self, seconds: float, *, least: int = 1) -> Latencies:
        """Repeats all kinds for `seconds`, and at least that often."""
        self._latencies = Latencies()
        kinds: Mapping[str, Callable[[aiohttp.ClientSession], Awaitable[float]]] = {
            "speech": self._speech,
            "stream": self._stream,
            "socket": self._socket,
            "transcript": self._transcript,
            "chat": self._chat,
            "plans": self._plans,
        }
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        headers = {"Authorization": f"Bearer {self._key}"}
        until, rounds = time.monotonic() + seconds, 0
        async with aiohttp.ClientSession(
            self._target.url, headers=headers, timeout=timeout
        ) as session:
            while time.monotonic() < until or rounds < least:
                for kind, work in kinds.items():
                    await self._measured(kind, work, session)
                    await asyncio.sleep(PAUSE_S)
                rounds += 1
        return self._latencies

    async def _measured(
        self,
        kind: str,
        work: Callable[[aiohttp.ClientSession], Awaitable[float]],
        session: aiohttp.ClientSession,
    ) -> None:
        """Records the time that `work` returns, or what refused it."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                self._latencies.took[kind].append(await work(session))
        except Refused as error:
            self._latencies.refused[f"{kind}: {error}"] += 1
        except (aiohttp.ClientError, WebSocketException, SocketError, OSError) as error:
            self._latencies.refused[f"{kind}: {type(error).__name__}"] += 1

    async def _speech(self, session: aiohttp.ClientSession) -> float:
        """A file of speech, and the time until its webhook event is there."""
        text = f"This is sentence number {next(self._numbers)}."
        began = time.monotonic()
        await _answer(session.post("/tts-synthesize", json={"text": text}))
        took = time.monotonic() - began
        if self._hook is not None:
            while not any(text.encode() in message.body for message in self._hook.received):
                await asyncio.sleep(0.01)
            self._hook.received.clear()
            self._latencies.took["webhook"].append(time.monotonic() - began)
        return took

    async def _stream(self, session: aiohttp.ClientSession) -> float:
        """The first line of a stream."""
        body = {"text": f"A stream of words, number {next(self._numbers)}. And one more."}
        began = time.monotonic()
        async with session.post("/tts-stream", json=body) as answer:
            first = await answer.content.readline()
            took = time.monotonic() - began
            lines = [first, *(await answer.read()).splitlines()]
            if answer.status != 200 or b'"complete"' not in lines[-1]:
                raise Refused(f"{answer.status} {lines[-1][:60]!r}")
        return took

    async def _socket(self, _: aiohttp.ClientSession) -> float:
        """The first audio of a text on a new socket."""
        began = time.monotonic()
        async with tts_socket(self._target.url, self._key, self._target.voice_id) as socket:
            flush = await socket.speak(f"Spoken live, number {next(self._numbers)}.")
        return flush.first - began

    async def _transcript(self, session: aiohttp.ClientSession) -> float:
        form = aiohttp.FormData()
        form.add_field("audio", self._clip, filename="clip.wav")
        began = time.monotonic()
        await _answer(session.post("/stt", data=form))
        return time.monotonic() - began

    async def _chat(self, session: aiohttp.ClientSession) -> float:
        """An answer of at most 8 tokens."""
        body = {
            "messages": [{"role": "user", "content": f"Say {next(self._numbers)}."}],
            "stream": False,
            "max_tokens": 8,
            "temperature": 0,
        }
        began = time.monotonic()
        await _answer(session.post("/v1/chat/completions", json=body))
        return time.monotonic() - began

    async def _plans(self, session: aiohttp.ClientSession) -> float:
        """A cheap request on a new connection."""
        began = time.monotonic()
        await _answer(session.get("/plans", headers={"Connection": "close"}))
        return time.monotonic() - began


async def _answer(sending: "aiohttp.client._RequestContextManager") -> None:
    """Reads the answer. Raises Refused."""
    async with sending as answer:
        body = await answer.read()
        if answer.status != 200:
            try:
                error = json.loads(body)["error"]
            except (ValueError, LookupError, TypeError):
                error = body[:40]
            raise Refused(f"{answer.status} {error}")
