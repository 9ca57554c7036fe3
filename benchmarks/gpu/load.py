"""Requests to the service, and what came of many at once."""

import asyncio
import base64
import io
import json
import statistics
import time
import wave
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from benchmarks.chat import gpu as chat
from benchmarks.tts import gpu as tts

CHAT_TOKENS = 128
Timed = tuple[float, float]  # seconds to the first piece, and how much there was
Figures = dict[str, float]


class Load:
    """Requests to the service. Each raises httpx.HTTPError or KeyError when it is not answered."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client, self.number = client, 0

    async def chat(self) -> Timed:
        """Seconds to the first word of an answer, and its tokens."""
        self.number += 1
        text = chat.LARGE.prompt.format(number=self.number)
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "max_tokens": CHAT_TOKENS, "stream": True}
        began, first, usage = time.perf_counter(), 0.0, 0
        path = "/openai/v1/chat/completions"
        async with self._client.stream("POST", path, json=body) as lines:
            await _check(lines)
            async for line in lines.aiter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line[6:])
                    if event["choices"] and event["choices"][0]["delta"].get("content"):
                        first = first or time.perf_counter() - began
                    usage = (event.get("usage") or {}).get("completion_tokens", usage)
        return first, usage

    async def speak(self, voice: str, sentences: int = 2) -> Timed:
        """Seconds to the first audio of a stream, and those of the audio."""
        self.number += 1
        text = f"{' '.join([tts.TEXT] * sentences)} {self.number}."
        body = {"text": text, "voice": voice, "output_format": "pcm"}
        began, first, seconds = time.perf_counter(), 0.0, 0.0
        async with self._client.stream("POST", "/tts-stream", json=body) as lines:
            await _check(lines)
            async for line in lines.aiter_lines():
                event = json.loads(line)
                if event["type"] == "error":
                    raise KeyError(line)
                if event["type"] == "chunk" and (pcm := event["result"]["audioContent"]):
                    first = first or time.perf_counter() - began
                    seconds += len(base64.b64decode(pcm)) / 2 / event["result"]["sample_rate"]
        return first, seconds

    async def record(self, text: str) -> tuple[bytes, float]:
        """A recording by the Fast voice, as a WAV file, and its seconds."""
        body = {"text": text, "output_format": "wav"}
        sound = base64.b64decode((await self.post("/tts-synthesize", json=body))["audio_base64"])
        with wave.open(io.BytesIO(sound)) as file:
            return sound, file.getnframes() / file.getframerate()

    async def transcribe(self, recording: bytes) -> str:
        form = {"files": {"audio": ("a.wav", recording)}, "data": {"language": "en"}}
        return str((await self.post("/stt", **form))["text"])

    async def clone(self, recordings: list[bytes]) -> float:
        """Makes the custom voice Ann; returns how many seconds it took."""
        began = time.perf_counter()
        files = [("files", (f"{n}.wav", one)) for n, one in enumerate(recordings)]
        made = await self.post("/voices", files=files, data={"name": "Ann", "language": "en"})
        while time.perf_counter() - began < 150:
            voice = (await self._client.get(f"/voices/{made['id']}")).json()
            if voice["status"] in ("ready", "failed"):
                break
            await asyncio.sleep(0.5)
        if voice["status"] != "ready":
            raise KeyError(json.dumps(voice))
        return time.perf_counter() - began

    async def post(self, path: str, **content: Any) -> dict[str, Any]:
        answer = await self._client.post(path, **content)
        await _check(answer)
        found: dict[str, Any] = answer.json()
        return found


async def _check(answer: httpx.Response) -> None:
    if answer.is_error:
        raise KeyError(f"{answer.status_code} {(await answer.aread()).decode()[:500]}")


async def together(count: int, call: Callable[[], Awaitable[Timed]], times: int = 1) -> Figures:
    """So many clients at once, each some `times` in a row: what they made a second, the requests a
    second, and the time to the first piece."""

    async def client() -> list[Timed]:
        return [await call() for _ in range(times)]

    began = time.perf_counter()
    made = [one for some in await asyncio.gather(*(client() for _ in range(count))) for one in some]
    took, firsts = time.perf_counter() - began, sorted(first for first, _ in made)
    each = {"first_p50_ms": 1000 * statistics.median(firsts), "first_max_ms": 1000 * firsts[-1]}
    rates = {"made_per_s": sum(much for _, much in made) / took, "requests_per_s": len(made) / took}
    return {"at_once": count, "took_s": took, **rates, **each}
