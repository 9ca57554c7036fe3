"""Requests to the service, and the figures of many at once."""

import asyncio
import base64
import io
import json
import time
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx

from benchmarks.harness.report import percentile
from benchmarks.tts import gpu as tts

CHAT_TOKENS = 128
VOICE_READY_S = 150
PROMPT = "Tell a long story about the number {number}, and take your time with it."
Timed = tuple[float, float]
"""Seconds to the first piece of an answer, and how much there was."""
Figures = dict[str, float]


class Load:
    """Requests to the service. Each raises httpx.HTTPError or KeyError when it is not answered."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.number = 0
        self._client = client

    async def chat(self) -> Timed:
        """Seconds to the first word of an answer, and its tokens."""
        self.number += 1
        text = PROMPT.format(number=self.number)
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "max_tokens": CHAT_TOKENS, "stream": True}
        began = time.perf_counter()
        first_s = tokens = 0.0
        async for line in self._lines("/openai/v1/chat/completions", body):
            if line.startswith("data: {"):
                event = json.loads(line[6:])
                if event["choices"] and event["choices"][0]["delta"].get("content"):
                    first_s = first_s or time.perf_counter() - began
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        return first_s, tokens

    async def speak(self, voice: str, sentences: int = 2) -> Timed:
        """Seconds to the first audio of a stream, and seconds of audio in all."""
        self.number += 1
        text = f"{' '.join([tts.TEXT] * sentences)} {self.number}."
        body = {"text": text, "voice": voice, "output_format": "pcm"}
        began = time.perf_counter()
        first_s = audio_s = 0.0
        async for line in self._lines("/tts-stream", body):
            event = json.loads(line)
            if event["type"] == "error":
                raise KeyError(line)
            if event["type"] == "chunk" and (pcm := event["result"]["audioContent"]):
                first_s = first_s or time.perf_counter() - began
                audio_s += len(base64.b64decode(pcm)) / 2 / event["result"]["sample_rate"]
        return first_s, audio_s

    async def record(self, text: str) -> tuple[bytes, float]:
        """A recording by the Fast voice, as a WAV file, and its seconds."""
        body = {"text": text, "output_format": "wav"}
        audio = base64.b64decode((await self.post("/tts-synthesize", json=body))["audio_base64"])
        with wave.open(io.BytesIO(audio)) as file:
            return audio, file.getnframes() / file.getframerate()

    async def transcribe(self, recording: bytes) -> str:
        files = {"audio": ("a.wav", recording)}
        return str((await self.post("/stt", files=files, data={"language": "en"}))["text"])

    async def clone(self, recordings: list[bytes]) -> float:
        """Make the custom voice Ann; return how many seconds it took."""
        began = time.perf_counter()
        files = [("files", (f"{number}.wav", data)) for number, data in enumerate(recordings)]
        voice = await self.post("/voices", files=files, data={"name": "Ann", "language": "en"})
        while time.perf_counter() - began < VOICE_READY_S and voice["status"] != "failed":
            voice = (await self._client.get(f"/voices/{voice['id']}")).json()
            if voice["status"] == "ready":
                return time.perf_counter() - began
            await asyncio.sleep(0.5)
        raise KeyError(json.dumps(voice))

    async def post(self, path: str, **content: Any) -> dict[str, Any]:
        answer = await self._client.post(path, **content)
        await _check(answer)
        body: dict[str, Any] = answer.json()
        return body

    async def _lines(self, path: str, body: dict[str, Any]) -> AsyncIterator[str]:
        async with self._client.stream("POST", path, json=body) as answer:
            await _check(answer)
            async for line in answer.aiter_lines():
                yield line


async def _check(answer: httpx.Response) -> None:
    if answer.is_error:
        raise KeyError(f"{answer.status_code} {(await answer.aread()).decode()[:500]}")


async def together(count: int, call: Callable[[], Awaitable[Timed]], times: int = 1) -> Figures:
    """The figures of `count` clients at once, each with `times` calls in a row: what they made per
    second, requests per second, and times to the first piece."""
    results: list[Timed] = []

    async def client() -> None:
        for _ in range(times):
            results.append(await call())

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(count)))
    took_s = time.perf_counter() - began
    firsts_ms = [1000 * first_s for first_s, _ in results]
    return {
        "at_once": count,
        "took_s": took_s,
        "made_per_s": sum(amount for _, amount in results) / took_s,
        "requests_per_s": len(results) / took_s,
        "first_p50_ms": percentile(firsts_ms, 50),
        "first_max_ms": max(firsts_ms),
    }
