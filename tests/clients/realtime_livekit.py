"""LiveKit's RealtimeModel for OpenAI in a spoken dialogue, and its realtime STT.

Arguments: base URL, key, and a folder with the sentences of the user as WAV files.

Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm, stt
from livekit.agents.utils import http_context
from livekit.plugins import openai

from tests.clients.microphone import RATE, Microphone, pieces

PATIENCE_S = 60.0


@llm.function_tool  # type: ignore[untyped-decorator]  # not of this environment
async def weather(city: str) -> str:
    """The weather of a city."""
    return f"fine in {city}"


async def take(generation: Any) -> dict[str, Any]:
    """The whole generation: its text, seconds of audio, and calls."""
    seen: dict[str, Any] = {"text": "", "audio_s": 0.0, "calls": []}

    async def messages() -> None:
        async for message in generation.message_stream:
            async for text in message.text_stream:
                seen["text"] += text
            async for frame in message.audio_stream:
                seen["audio_s"] += frame.duration

    async def calls() -> None:
        seen["calls"] = [call async for call in generation.function_stream]

    await asyncio.gather(messages(), calls())
    return seen


async def dialogue(base_url: str, key: str, folder: Path) -> dict[str, Any]:
    model = openai.realtime.RealtimeModel(base_url=base_url, api_key=key)
    session = model.session()
    generations: asyncio.Queue[Any] = asyncio.Queue()
    heard: list[str] = []
    errors: list[str] = []
    session.on("generation_created", generations.put_nowait)
    session.on("error", lambda event: errors.append(str(event.error)))

    def transcribed(event: Any) -> None:
        if event.is_final:
            heard.append(event.transcript)

    session.on("input_audio_transcription_completed", transcribed)
    await session.update_instructions("You are a concierge.")
    await session.update_tools([weather])

    async def send(data: bytes) -> None:
        session.push_audio(rtc.AudioFrame(data, RATE, 1, len(data) // 2))

    microphone = Microphone(folder, send)
    listening = asyncio.create_task(microphone.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            greeting = await take(await session.generate_reply())
            await generations.get()

            microphone.say("weather")
            (call,) = (await take(await generations.get()))["calls"]
            context = session.chat_ctx.copy()
            output = await weather(**json.loads(call.arguments))
            context.items.append(
                llm.FunctionCallOutput(
                    name=call.name, call_id=call.call_id, output=output, is_error=False
                )
            )
            await session.update_chat_ctx(context)
            answer = await take(await session.generate_reply())
            await generations.get()

            await asyncio.sleep(1)
            microphone.say("story")
            telling = await generations.get()
            whole = asyncio.create_task(take(telling))
            await asyncio.sleep(3)
            microphone.say("stop")
            story = await whole
            await take(await generations.get())

            await asyncio.sleep(1)
            microphone.say("goodbye")
            farewell = await take(await generations.get())
    finally:
        listening.cancel()
        await session.aclose()
    return {
        "texts": [one["text"] for one in (greeting, answer, story, farewell)],
        "audio_s": [one["audio_s"] for one in (greeting, answer, story, farewell)],
        "call": [call.name, call.arguments],
        "heard": heard,
        "errors": errors,
    }


async def listen(base_url: str, key: str, path: Path) -> str:
    """The first final of the realtime STT."""
    recogniser = openai.STT(base_url=base_url, api_key=key, use_realtime=True)
    async with recogniser.stream() as stream, asyncio.timeout(PATIENCE_S):
        for part in (bytes(RATE), *pieces(path), bytes(RATE * 4)):
            stream.push_frame(rtc.AudioFrame(part, RATE, 1, len(part) // 2))
        async for event in stream:
            if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                return str(event.alternatives[0].text)
    return ""


async def see(base_url: str, key: str, folder: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        http_context._ContextVar.set(lambda: session)
        seen = await dialogue(base_url, key, Path(folder))
        return {**seen, "final": await listen(base_url, key, Path(folder) / "weather.wav")}


sys.stdout.write(json.dumps(asyncio.run(see(*sys.argv[1:4]))) + "\n")
