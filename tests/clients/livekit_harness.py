"""What programs with LiveKit's plugins share: a recording that is heard, texts that are spoken.

Such a program is run by the interpreter of .venv-clients; it prints what it read as one line of
JSON, by `report`.
"""

import asyncio
import json
import sys
import wave
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from livekit import rtc
from livekit.agents import APIConnectOptions, APIError

ONCE = APIConnectOptions(max_retry=0, timeout=10)
SENTENCES = "A sentence for the room. And one more."


def frames(path: str) -> list[Any]:
    """The recording, then six seconds of silence, in pieces of 50 ms."""
    with wave.open(path) as file:
        rate, data = file.getframerate(), file.readframes(file.getnframes())
    data += bytes(12 * rate)
    step = rate // 10
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    return [rtc.AudioFrame(one, rate, 1, len(one) // 2) for one in pieces]


async def listen(stt: Any, path: str, ends: str) -> list[list[str]]:
    """The events up to the first of that type, in order, each once in a row."""
    seen: list[list[str]] = []
    async with stt.stream(conn_options=ONCE) as stream:

        async def say() -> None:
            """Four times as fast as it sounds."""
            for frame in frames(path):
                stream.push_frame(frame)
                await asyncio.sleep(frame.duration / 4)

        saying = asyncio.create_task(say())
        async for event in stream:
            if event.type == "recognition_usage":
                continue
            text = event.alternatives[0].text if event.alternatives else ""
            if not seen or seen[-1] != [str(event.type.value), text]:
                seen.append([str(event.type.value), text])
            if event.type == ends:
                break
        saying.cancel()
    return seen


async def audio(spoken: AsyncIterator[Any]) -> dict[str, Any]:
    samples, rate = 0, 0
    async for event in spoken:
        samples += event.frame.samples_per_channel
        rate = event.frame.sample_rate
    return {"seconds": samples / rate if rate else 0.0, "rate": rate}


async def speak(tts: Any) -> dict[str, Any]:
    async with tts.stream(conn_options=ONCE) as stream:
        for start in range(0, len(SENTENCES), 5):
            stream.push_text(SENTENCES[start : start + 5])
        stream.end_input()
        return await audio(stream)


async def failure(work: Any) -> str:
    try:
        async with asyncio.timeout(15):
            await work
    except APIError as error:
        return f"{type(error).__name__} {getattr(error, 'status_code', '')}"
    return "nothing failed"


def report(work: Coroutine[Any, Any, dict[str, Any]]) -> None:
    """Prints what the work saw."""
    sys.stdout.write(json.dumps(asyncio.run(work)) + "\n")
